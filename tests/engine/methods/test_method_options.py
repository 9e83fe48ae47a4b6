from kbqa.engine.methods import describe_settings, read_settings, split_settings
from kbqa.engine.methods.kbqa import KbqaSettings


def test_each_default_that_is_listed_can_be_set() -> None:
    for setting in describe_settings(KbqaSettings):
        given = {setting.name: setting.default}
        assert read_settings(KbqaSettings, given, "kbqa") == KbqaSettings()


def test_a_value_may_hold_an_equals_sign() -> None:
    assert split_settings(["width=5", "file=a=b"]) == {"width": "5", "file": "a=b"}
