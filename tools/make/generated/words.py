"""The words of a synthetic dump: English names and texts, and names in thirty languages.

Characters that N-Triples requires to be escaped are escaped already.
"""

import itertools


def _words(text: str) -> list[str]:
    return text.split()


FIRST_WORDS = _words(
    """
    Ada Agnes Albert Alice Amara Anders Andrea Anita Anton Arthur Astrid Barbara Beatrice Benjamin
    Bernard Boris Carla Carlos Caroline Cecil Charles Charlotte Clara Claude Daniel David Diana
    Dmitri Dorothy Edgar Edith Edward Elena Elias Elizabeth Emma Enrique Erik Esther Eva Felix
    Fiona Frances Frank Fred George Gloria Grace Greta Hannah Harold Helen Henry Hugo Ibrahim Ida
    Igor Irene Isaac Ivan Jack Jacob James Jane Jean Joan Johan John José Joseph Julia Karim Karl
    Katherine Kenji Laura Leo Leonard Lily Linda Louis Lucia Luis Magnus Marco Margaret Maria Mark
    Martha Martin Mary Matthew Max Michael Miriam Mohammed Nadia Nancy Nathan Nicholas Nina Nora
    Olga Oliver Oscar Otto Pablo Patricia Paul Pedro Peter Philip Rachel Ralph Raymond Rebecca
    Richard Robert Rosa Ruth Samuel Sandra Sarah Sergei Simon Sofia Sophie Stefan Stephen Susan
    Sven Teresa Thomas Tomás Ursula Vera Victor Viktor Vincent Virginia Walter William Yasmin Yuki
    North South East West New Old Upper Lower Great Little Saint Port Fort Mount Lake River Royal
    Golden Silver Black White Red Blue Green Dark Bright Silent Last First Second Lost Hidden
    Broken Secret Wild Eternal American British Canadian French German Italian Russian Japanese
    Indian National International Modern Ancient Public Central United The A Return Song Night
    Day Children House Legend Story History Battle Order Book Art Journal Best Live
    """
)

_STEMS = _words(
    """
    Ash Atter Beck Birch Black Brad Bridge Brook Burn Cald Carl Chap Chester Clay Cole Cran Dal
    Dun East Edge Fair Farn Glen Green Hamp Hart Haver Hawk Hazel Holm Hunt Kel Kings Lang Lin
    Marl May Mil Nor Oak Pem Pres Quin Rad Rams Rose Rother Sal Sand Shel Stan Stock Strat Sut
    Thorn Under Wake Wal Ware Wen Whit Wil Win Wood York
    """
)
_ENDINGS = _words(
    """
    beck berg borough bourne bridge brook bury by castle church combe cott croft dale den don
    field fold ford gate grove ham hill hurst land ley man mere mont more mouth port ridge sby
    shaw shire side sley smith son stead stein stone ston ton vale ville ward water well wick
    wood worth
    """
)
_NOUNS = _words(
    """
    Academy Album Alliance Archive Army Association Avenue Award Band Bank Bay Beach Bird Bridge
    Camp Canal Castle Cathedral Championship Church City Club Coast College Company Conference
    Council County Creek Crown Dance Desert District Dream Empire Engine Express Factory Falls
    Family Festival Forest Foundation Garden Gate Group Harbour Heart Hill Hospital Hotel Hour
    Island Journey King Kingdom Lake Law League Library Light Line Machine Market Memory Mile
    Mirror Mission Moon Mountain Museum Music Night Ocean Office Orchestra Palace Paper Park Party
    Path Peak Planet Point Prison Project Queen Race Railway Rain River Road Rock Room School Sea
    Season Shadow Ship Sky Society Song Square Stadium Star Station Storm Street Summer Sun Sword
    Symphony Teacher Temple Theatre Time Tower Town Train Tree Trio Union University Valley
    Village Voice Wall War Water Wind Window Winter Woman World Year
    """
)

LAST_WORDS = tuple(
    [stem + ending for stem, ending in itertools.product(_STEMS, _ENDINGS)]
    + _NOUNS
    + [
        f"{stem}{ending} {noun}"
        for stem, ending, noun in zip(_STEMS * 3, _ENDINGS * 5, _NOUNS * 2, strict=False)
    ]
)

NAME_TAILS = tuple(
    [f" {number}" for number in range(2, 400)]
    + [f" ({year} film)" for year in range(1920, 2015)]
    + [f" ({year})" for year in range(1900, 2015)]
    + [f", {stem}{ending}" for stem, ending in zip(_STEMS * 2, _ENDINGS * 3, strict=False)]
    + [f" {word}" for word in ("II", "III", "IV", "Jr.", "Sr.", "& Sons", "No. 1", r"\"Live\"")]
    + [f" and the {noun}" for noun in _NOUNS]
    + [f" of the {noun}s" for noun in _NOUNS]
    + [f" {noun}" for noun in _NOUNS]
)

SENTENCES = tuple(
    f"{opening} {subject} {verb} {rest}."
    for opening, subject, verb, rest in itertools.product(
        ("It is known that the", "According to the records the", "Since then the", "Today the"),
        ("family", "company", "village", "novel", "orchestra", "species", "river"),
        ("was described by", "has been part of", "moved away from", "took its name from"),
        (
            "the northern districts, which were settled late",
            "a small group of engineers around the turn of the century",
            "its first owner and, after a long dispute, of his daughters",
            r"what was called \"the great work\" in the newspapers",
            r"two regions that share a border\nand little else",
            "the university, where most of the collection is still kept",
        ),
    )
)

PROPERTY_WORDS = _words(
    """
    origin founder member period title parent kind author editor series region rating material
    inventor owner role height width depth volume capacity speed power opened closed began ended
    released recorded published produced featured location subject purpose symbol style colour
    status category format source target host sponsor teacher student successor predecessor
    neighbour ingredient instrument vehicle station route season episode chapter version score
    rank winner loser participant event venue date_founded date_of_death place_of_origin works
    parts awards records editions programs services products branches affiliations
    """
)

DOMAIN_WORDS = _words(
    """
    film music people location book sports award education government business tv biology medicine
    computer military architecture aviation transportation religion law language food astronomy
    chemistry physics geography media_common organization broadcast cvg games comic_books theater
    visual_art royalty time travel measurement_unit influence internet fictional_universe soccer
    baseball basketball american_football tennis ice_hockey boats automotive rail spaceflight
    meteorology conferences library digicams dining celebrities wine opera martial_arts
    olympics zoos bicycles skiing fashion interests symbols engineering finance
    """
)

TYPE_WORDS = _words(
    """
    work artist group place genre event character series edition member maker award_winner record
    club team venue school leader company product species structure region division facility
    period position role format instrument vehicle body substance device document program topic
    honour organism route station system category style theme movement object collection source
    profession competition tournament season contest mission building area feature variety
    """
)

COUNTRIES = (
    ("m.09c7w0", "United States of America"),
    ("m.07ssc", "United Kingdom"),
    ("m.0d060g", "Canada"),
    ("m.03rk0", "India"),
    ("m.0345h", "Germany"),
    ("m.0f8l9c", "France"),
    ("m.03_3d", "Japan"),
    ("m.03rjj", "Italy"),
    ("m.0chghy", "Australia"),
    ("m.0d05w3", "China"),
    ("m.06mkj", "Spain"),
    ("m.015fr", "Brazil"),
    ("m.06bnz", "Russia"),
    ("m.059j2", "Netherlands"),
    ("m.0d0vqn", "Sweden"),
    ("m.06qd3", "Pakistan"),
    ("m.0b90_r", "Mexico"),
    ("m.05qhw", "Poland"),
    ("m.03_r3", "Jamaica"),
    ("m.019rg5", "Kenya"),
)
GENDERS = (("m.05zppz", "Male"), ("m.02zsn", "Female"))
LANGUAGES = (
    ("m.02h40lc", "English Language"),
    ("m.02bjrlw", "Italian Language"),
    ("m.04306rv", "German Language"),
    ("m.064_8sq", "French Language"),
    ("m.06nm1", "Spanish Language"),
    ("m.03hkp", "Hebrew Language"),
)

_SYLLABLES = {
    "ru": "ва ле ни ко мо ра ту ше ри до бе га но ст ки",
    "uk": "ві ле ні ко мо ра ту ше рі до бе ґа но їн ки",
    "bg": "ва ле ни ко мо ра ту ъл ри до бе га но щи ки",
    "sr": "ва ле ни ко мо ра ту ђе ри до бе га но ћи љу",
    "el": "κα λο με νι πο ρα σο τη φι χω γε δα θε ια ων",
    "he": "בא גל דן הר זו חי טל כן לי מו נר סע פת צב שר",
    "ar": "با تي جم حد خا در زي سن شر صا طب عل فا قم كر",
    "fa": "با تی جم حد خا در زی سن شر پا چه گل فا ژا کر",
    "hi": "का मि रा सु ने पा लो दे गा वि शा तु बी हा जो",
    "bn": "কা মি রা সু নে পা লো দে গা বি শা তু বী হা জো",
    "ta": "கா மி ரா சு நே பா லோ தே வி ழா து யா கோ ளி னை",
    "th": "กา มิ รา สุ เน ปา โล เท วิ ชา ตุ บี หา โจ ยู",
    "ja": "カ ミ ラ ス ネ パ ロ デ ガ ヴィ シャ トゥ ビー ハ ジョ",
    "zh": "山 水 天 明 国 华 东 西 安 金 大 文 海 龙 林",
    "zh-Hant": "山 水 天 明 國 華 東 西 安 金 大 文 海 龍 林",
    "ko": "가 민 라 수 네 파 로 대 김 비 샤 투 박 하 조",
    "vi": "Hà Mỹ Lý Sơn Nê Phú Lộc Đế Gia Việt Sa Từ Bí Hồ Giô",
    "tr": "ka mı ra sü ne pa lo de ga vi şa tu bi ha ço",
    "pl": "ka mi rą su nę pa ło de ga wi śa tu bi ha żo",
    "cs": "ka mí řa su ně pa lo de ga ví ša tu bí há žo",
    "hu": "ka mi rá sű né pa ló de ga vi sá tu bí ha jő",
    "ro": "ka mi ră su ne pa lo de ga vi șa tu bi ha țo",
    "lt": "ka mi rą su nė pa lo de ga vi ša tū bi ha žo",
    "sv": "ka mi rå su nä pa lö de ga vi sja tu bi ha jo",
    "de": "ka mi rä su ne pfa lö de gau vi scha tü bi ha jo",
    "fr": "ca mi ré su nê pa lô de gà vi ça tu bi hé jo",
    "es": "ca mi rá su ñe pa ló de ga ví cha tu bi ha jo",
    "es-419": "ca mi rá su ñe pa ló de ga ví cha tu bi ha yo",
    "pt": "ca mi rã su nhe pa lõ de ga vi ça tu bi há jo",
    "it": "ca mi rà su gne pa lò de ga vi scia tu bi chia jo",
    "nl": "ka mij ra su nee pa loo de ga vi scha tui bi ha jo",
    "en-GB": "Har bour col our cen tre gre y lyne the wick mere",
}
OTHER_LANGUAGES = tuple(sorted(_SYLLABLES))


def foreign_name(language: str, number: int) -> str:
    """Return the name for a number in a language; the same number gives the same name."""
    syllables = _SYLLABLES[language].split()
    number = number * 2654435761 % 2**32
    words = []
    for length in (3, 2):
        word = ""
        for _ in range(length):
            number, place = divmod(number * 7 + 3, len(syllables))
            word += syllables[place]
        words.append(word.capitalize())
    return ("" if language in ("ja", "zh", "zh-Hant", "th") else " ").join(words)
