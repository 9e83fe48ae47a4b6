from kbqa.engine.methods.kbqa import KbqaSettings
from kbqa.engine.methods.options import describe_settings, read_settings


def test_each_default_that_is_listed_can_be_set() -> None:
    for setting in describe_settings(KbqaSettings):
        given = {setting.name: setting.default}
        assert read_settings(KbqaSettings, given, "kbqa") == KbqaSettings()
