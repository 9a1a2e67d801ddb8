"""Tables in the dialects and formats that people have become the records of the plain file."""

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.new_recipe import propose_for
from tests.refusals import refused
from tests.tables import read_rows, write
from tests.trainer.data.picture_folders import rejected
from trainer.data.sources import kinds
from trainer.data.tables import csv_text, proposal, sniffing
from trainer.data.tables.dialect import Dialect
from vertex.errors import InputError

CITIES = {
    "cp1252": "Besançon Château Évry Fréjus Hérault Sète Québec Nîmes Orléans Mâcon Béziers Alès "
    "Angoulême Périgueux Sélestat Bègles Châlons Pézenas Évreux Compiègne Thionville Nogaro",
    "cp1250": "Łódź Kraków Gdańsk Wrocław Poznań Rzeszów Częstochowa Świdnica Żory Jędrzejów Toruń",
    "cp1251": "Москва Казань Самара Омск Пермь Воронеж Уфа Томск Рязань Тула Псков Киров",
    "koi8-r": "Москва Казань Самара Омск Пермь Воронеж Уфа Томск Рязань Тула Псков Киров",
    "cp1253": "Αθήνα Πάτρα Λάρισα Βόλος Χανιά Καβάλα Κόρινθος Θεσσαλονίκη Τρίκαλα Ρόδος",
    "cp1256": "القاهرة بغداد دمشق الرياض عمان بيروت تونس الرباط طرابلس الخرطوم",
    "cp949": "서울 부산 대구 인천 광주 대전 울산 수원 창원 고양 용인 성남 청주 전주 천안 포항",
    "cp932": "東京 大阪 なごや さっぽろ 福岡 神戸 カワサキ 京都 仙台 広島 表町 能登",
    "gb18030": "北京 上海 广州 深圳 天津 重庆 成都 武汉 西安 杭州 南京 苏州 郑州 长沙 沈阳 青岛",
    "cp950": "臺北 高雄 臺中 臺南 新竹 嘉義 基隆 桃園 屏東 花蓮 宜蘭 彰化 許功 苗栗",
    "utf-8": "Köln Zürich 東京 Łódź",
}
COLUMNS = {
    "columns": [{"name": "city", "type": "vocabulary"}, {"name": "area", "type": "numeric"}],
    "crosses": [],
    "label": {"column": "price", "type": "numeric"},
}


def rows_of(encoding: str = "utf-8", count: int = 90) -> list[list]:
    names = CITIES[encoding].split()
    return [[names[n % len(names)], 20 + n * 7 % 90, 1000 + n * 37] for n in range(count)]


def text_of(rows: list[list], **options) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=options.pop("lineterminator", "\n"), **options)
    writer.writerows([["city", "area", "price"], *rows])
    return written.getvalue()


def learned(source: str, folder: Path, **options) -> list[tuple]:
    dataset = write("", folder, source=source, **COLUMNS, **options)
    return sorted((row["city"].decode(), row["area"], row["label"]) for row in read_rows(dataset))


def expected(rows: list[list]) -> list[tuple]:
    return sorted((city.strip(), area, price) for city, area, price in rows)


@pytest.mark.parametrize("encoding", sorted({*CITIES} - {"utf-8"}))
def test_encoding_is_found_from_the_names_in_a_table(tmp_path, encoding):
    rows = rows_of(encoding)
    path = tmp_path / "t.csv"
    path.write_bytes(text_of(rows).encode(encoding))
    found = kinds()["csv"].sniff(str(path))
    assert found.dialect.settings == {"encoding": encoding}
    assert found.notes == [f"the encoding is {encoding}: 'city' has {rows[0][0]!r}"]
    assert learned(f"csv:{path}", tmp_path / "out", dialect=found.dialect.settings) == expected(
        rows
    )


def single_quoted(rows):
    return "'city','area','price'\n" + "".join(f"'{a}','{b}','{c}'\n" for a, b, c in rows)


def escaped(rows):
    lines = (f'"{a} \\"x\\", y",{b},{c}\n' for a, b, c in rows)
    return "city,area,price\n" + "".join(lines)


WRITTEN = {
    "semicolons": ({"delimiter": ";"}, lambda rows: text_of(rows, delimiter=";")),
    "tabs": ({"delimiter": "\t"}, lambda rows: text_of(rows, delimiter="\t")),
    "pipes": ({"delimiter": "|"}, lambda rows: text_of(rows, delimiter="|")),
    "CR": ({"line_end": "\r"}, lambda rows: text_of(rows, lineterminator="\r")),
    "CRLF": ({}, lambda rows: text_of(rows, lineterminator="\r\n")),
    "BOM": ({}, lambda rows: "\ufeff" + text_of(rows)),
    "single quotes": ({"quote": "'"}, single_quoted),
    "blanks before quotes": (
        {"skip_initial_space": True},
        lambda rows: text_of(rows, quoting=csv.QUOTE_ALL).replace(",", ", "),
    ),
    "sep=": (
        {"delimiter": ";", "skip_rows": 1},
        lambda rows: "sep=;\n" + text_of(rows, delimiter=";"),
    ),
    "title": ({"skip_rows": 2}, lambda rows: "Sales of 2024,,\n\n" + text_of(rows)),
    "bare title": ({"skip_rows": 1}, lambda rows: "Sales of 2024\n" + text_of(rows)),
    "titles with commas": (
        {"delimiter": ";", "skip_rows": 3},
        lambda rows: "Sales\nUnit: EUR, net\n\n" + text_of(rows, delimiter=";"),
    ),
    "total": ({"footer_rows": 2}, lambda rows: text_of(rows) + ",,\nTotal,,999999\n\n"),
    "note": ({"footer_rows": 1}, lambda rows: text_of(rows) + "Source: statistics,,\n"),
    "total and a year": ({"footer_rows": 1}, lambda rows: text_of(rows) + "TOTAL 2024,5000,\n"),
    "total in another field": ({"footer_rows": 1}, lambda rows: text_of(rows) + ",Total:,99\n"),
    "mean": ({"footer_rows": 1}, lambda rows: text_of(rows) + "Average,,4000\n"),
    "sums without a word": (
        {"footer_rows": 1},
        lambda rows: text_of([*rows, ["Alles", sum_of(rows, 1), sum_of(rows, 2)]]),
    ),
    "means without a word": (
        {"footer_rows": 1},
        lambda rows: text_of([*rows, ["", f"{sum_of(rows, 1) / len(rows):.3f}", ""]]),
    ),
    "blanks": ({"delimiter": " "}, lambda rows: text_of(rows, delimiter=" ")),
}


def sum_of(rows: list[list], column: int) -> int:
    return sum(row[column] for row in rows)


@pytest.mark.parametrize("kind", WRITTEN)
def test_dialect_is_found_and_gives_the_rows_of_the_plain_file(tmp_path, kind):
    settings, writer = WRITTEN[kind]
    rows, path = rows_of(), tmp_path / "t.csv"
    path.write_bytes(writer(rows).encode())
    found = kinds()["csv"].sniff(str(path))
    assert found.dialect.settings == settings
    assert bool(found.notes) == bool(settings)
    assert learned(f"csv:{path}", tmp_path / "out", dialect=settings) == expected(rows)


def test_backslashes_escape_quotes_and_stay_elsewhere(tmp_path):
    rows, path = rows_of(), tmp_path / "t.csv"
    path.write_text(escaped(rows) + "C:\\new,1,2\n\\N,3,4\n", encoding="utf-8")
    found = kinds()["csv"].sniff(str(path)).dialect
    assert found.settings == {"escape": "\\"}
    given = [[f'{city} "x", y', *rest] for city, *rest in rows]
    given += [["C:\\new", 1, 2], ["\\N", 3, 4]]
    assert learned(f"csv:{path}", tmp_path / "out", dialect=found.settings) == expected(given)


NOTES = {
    "several lines": ({}, '"', "{0} street\nGate {1}\nTown"),
    "quotes in single quotes": ({"quote": "'"}, "'", '{0} "Inn", hall {1}'),
}


@pytest.mark.parametrize("kind", NOTES)
def test_quoted_fields_may_contain_line_ends_and_other_quotes(tmp_path, kind):
    settings, quote, form = NOTES[kind]
    rows = [[form.format(city, area), area, price] for city, area, price in rows_of()]
    path = tmp_path / "t.csv"
    quoting = csv.QUOTE_ALL if quote == "'" else csv.QUOTE_MINIMAL
    path.write_text(text_of(rows, quotechar=quote, quoting=quoting), encoding="utf-8")
    found = kinds()["csv"].sniff(str(path)).dialect
    assert found.settings == settings
    assert learned(f"csv:{path}", tmp_path / "out", dialect=settings) == expected(rows)


@pytest.mark.parametrize("last", ["Total Nord,30,1000", ",30,1000"])
def test_last_row_that_may_be_a_total_is_kept_with_a_note(tmp_path, last):
    path = tmp_path / "t.csv"
    path.write_text(text_of(rows_of()) + last, encoding="utf-8")
    found = kinds()["csv"].sniff(str(path))
    assert found.dialect == Dialect()
    assert f"the last row is kept: {last!r}; if it is a total" in found.notes[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_characters_are_read_with_and_without_their_mark(tmp_path, encoding):
    # U+0A2C has the byte of a line end.
    rows, path = [*rows_of(), ["\u0a2c\u2c0a", 1, 2]], tmp_path / "t.csv"
    path.write_bytes(text_of(rows, delimiter="\t").encode(encoding))
    found = kinds()["csv"].sniff(str(path)).dialect.settings
    assert found == {"encoding": encoding, "delimiter": "\t"}
    assert learned(f"csv:{path}", tmp_path / "out", dialect=found) == expected(rows)


def test_compressed_files_are_read_whatever_their_names(tmp_path):
    rows = rows_of()
    content = text_of(rows).encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("sales/t.csv", content)
        file.writestr("__MACOSX/._t.csv", b"x")
    compressed = {
        "gzip": gzip.compress(content),
        "bz2": bz2.compress(content),
        "xz": lzma.compress(content),
        "zip": archive.getvalue(),
        "zstd": pa.compress(content, "zstd", asbytes=True),
    }
    for name, raw in compressed.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(raw)
        assert learned(f"csv:{path}", tmp_path / name) == expected(rows), name
        assert kinds()["csv"].sniff(str(path)).dialect == Dialect()
        path.write_bytes(raw[: len(raw) // 2])
        assert "can't be read" in refused(learned, f"csv:{path}", tmp_path / "none")


@pytest.mark.parametrize(
    "texts",
    [
        ["PM2.5 (µg/m³)"],
        ["NO2 [µg/m³]"],
        ["5 °C", "±3 µm", "½"],
        ["Dichte (kg/m³)"],
        ["Àlex", "Île", "Fenêtre", "Élève", "Forêt", "Hôtel", "Château", "Garçon"],
    ],
)
def test_signs_and_letters_of_one_language_are_evidence(tmp_path, texts):
    path = tmp_path / "t.csv"
    path.write_bytes(text_of([[text, 1, 2] for text in texts * 10]).encode("cp1252"))
    assert sniffing.sniff(str(path)).dialect.encoding == "cp1252"


@pytest.mark.parametrize(
    ("encoding", "texts"),
    [
        ("cp1251", ["Имя"]),
        ("cp949", ["남", "여"]),
        ("gb18030", ["深圳"]),
        ("cp950", ["育樂", "許功蓋", "淚珠"]),  # They contain bytes of | and of \\.
        ("mac-roman", ["Año"]),
        ("koi8-r", ["Дата", "Вход"]),
    ],
)
def test_few_words_are_read_rightly_or_refused(tmp_path, encoding, texts):
    path = tmp_path / "t.csv"
    path.write_bytes(text_of([[text, 1, 2] for text in texts * 10]).encode(encoding))
    try:
        assert sniffing.sniff(str(path)).dialect.encoding == encoding
    except InputError as error:
        assert f'--set \'dialect={{"encoding": "{encoding}"}}\'' in str(error)


def test_names_in_two_encodings_are_refused_with_both_readings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(text_of([["Segrè", 1, 2], ["Roma", 3, 4]] * 20).encode("cp1252"))
    message = refused(sniffing.sniff, str(path))
    for encoding, text in (("cp1252", "Segrè"), ("cp1250", "Segrč")):
        assert f'in {encoding}, {text!r}: --set \'dialect={{"encoding": "{encoding}"}}\'' in message
    found = sniffing.sniff(str(path), {"encoding": "cp1252"})
    assert found.dialect.settings == {"encoding": "cp1252"}


def test_file_that_was_encoded_twice_is_told(tmp_path):
    path = tmp_path / "t.csv"
    text = text_of([["Köln", 1, 2], ["Ulm", 3, 4]] * 20)
    path.write_text(text.encode().decode("cp1252"), encoding="utf-8")
    found = sniffing.sniff(str(path))
    assert found.notes == ["'KÃ¶ln' may be 'Köln': was the file encoded twice?"]


def test_two_delimiters_are_refused_with_both_readings(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b;c\n" + "x,y;1\n" * 30)
    assert "2 fields a row with ',' between" in refused(sniffing.sniff, str(path))
    assert sniffing.sniff(str(path), {"delimiter": ";"}).dialect.delimiter == ";"


def test_delimiter_of_two_characters_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a::b::c\n" + "x::1::2\n" * 30)
    assert "has '::' between its fields" in refused(sniffing.sniff, str(path))


def test_decimal_commas_do_not_separate_fields(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b;c\n" + "1,5;2,5;3,0\n" * 30)
    assert sniffing.sniff(str(path)).dialect.settings == {"delimiter": ";"}


def test_table_without_a_header_is_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("".join(f"5.{n % 9},x{n % 3},{n}.5\n" for n in range(40)))
    message = refused(sniffing.sniff, str(path))
    assert "has no header: its first row is '5.0,x0,0.5'; add a first line" in message
    # Commas between decimals, too.
    path.write_text("place,price,kind\n" + "".join(f"x,{n},{n * 37 % 90},a\n" for n in range(40)))
    message = refused(sniffing.sniff, str(path))
    assert "row 1, 'place,price,kind', has 3 fields, and the rows below it have 4" in message
    path.write_text("place,2019,2020,2021\n" + "x,1,2,3\n" * 40)
    assert sniffing.sniff(str(path)).dialect == Dialect()


@pytest.mark.parametrize("kind", ["semicolons", "CR", "title", "blanks before quotes"])
def test_other_dialect_is_refused_with_the_one_to_write(tmp_path, kind):
    settings, writer = WRITTEN[kind]
    path = tmp_path / "t.csv"
    path.write_bytes(writer(rows_of()).encode())
    message = refused(learned, f"csv:{path}", tmp_path / "out")
    assert f"; add dialect = {Dialect(**settings)} to the recipe, or let `recipes new`" in message


def test_other_encoding_is_refused_with_the_one_to_write(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(text_of(rows_of("cp949")).encode("cp949"))
    message = refused(learned, f"csv:{path}", tmp_path / "out")
    assert 'is not in UTF-8; add dialect = { encoding = "cp949" } to' in message


def test_later_file_in_another_dialect_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(text_of(rows_of("cp1251")).encode("cp1251"))
    for encoding, options in (("utf-8", {}), ("cp1253", {}), ("cp1251", {"delimiter": ";"})):
        rows = rows_of("cp1251" if encoding == "utf-8" else encoding)
        (tmp_path / "b.csv").write_bytes(text_of(rows, **options).encode(encoding))
        source = f"csv:{tmp_path}"
        message = refused(learned, source, tmp_path / "out", dialect={"encoding": "cp1251"})
        assert "b.csv" in message
        assert 'the dialect is { encoding = "cp1251" }, and this file\'s is {' in message


PLAIN_ROWS = "city,area,price\n" + "Lyon,5,6\nParis,7,80\nRome,9,1\n" * 9
BELOW_THE_HEADER = {
    "quotes": (PLAIN_ROWS, PLAIN_ROWS.replace("Lyon", "'Lyon'").replace("Paris", "'Paris'"), "'"),
    "blanks before quotes": (
        PLAIN_ROWS,
        PLAIN_ROWS.replace(",6", ', "6"').replace(",80", ', "80"'),
        "there are blanks before quotes",
    ),
    "escapes": (
        PLAIN_ROWS,
        PLAIN_ROWS.replace("Lyon", '"a \\"b\\" c"'),
        "backslashes escape quotes",
    ),
    "added total": (PLAIN_ROWS, PLAIN_ROWS + "Total,999,999\n", "'Total,999,999' is a total"),
    "missing total": (
        PLAIN_ROWS + "Total,999,999\n",
        PLAIN_ROWS,
        "'Rome,9,1' is an example, but is left out as a footer",
    ),
}


@pytest.mark.parametrize("place", ["in a later file", "in a file that is replaced"])
@pytest.mark.parametrize("kind", BELOW_THE_HEADER)
def test_other_dialect_below_the_header_is_refused(tmp_path, kind, place):
    before, after, words = BELOW_THE_HEADER[kind]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text(before, encoding="utf-8")
    settings = kinds()["csv"].sniff(str(folder)).dialect.settings
    name = "b.csv" if "later" in place else "a.csv"
    (folder / name).write_text(after, encoding="utf-8")
    message = refused(learned, f"csv:{folder}", tmp_path / "out", dialect=settings)
    assert f"{name}: " in message and words in message


@pytest.mark.parametrize("encoding", ["cp949", "cp932", "gb18030", "cp1251"])
def test_encoding_of_the_header_alone_is_named(tmp_path, encoding):
    path = tmp_path / "t.csv"
    header = ",".join(CITIES[encoding].split()[:3])
    path.write_bytes((header + "\n1,2,3\n4,5,6" * 40).encode(encoding))
    try:
        named = f"{kinds()['csv'].sniff(str(path)).dialect}"
    except InputError as error:
        named = str(error)
    assert encoding in named
    assert "set dialect, such as" not in refused(learned, f"csv:{path}", tmp_path / "out")


def test_file_whose_name_is_a_pattern_is_read(tmp_path):
    rows, path = rows_of(), tmp_path / "data [1].csv"
    path.write_text(text_of(rows), encoding="utf-8")
    assert learned(f"csv:{path}", tmp_path / "out") == expected(rows)


def test_hidden_and_locked_files_of_a_folder_are_left_out(tmp_path):
    rows, folder = rows_of(), tmp_path / "in"
    folder.mkdir()
    (folder / "t.csv").write_text(text_of(rows), encoding="utf-8")
    for name in (".t.csv", "~$t.csv"):
        (folder / name).write_text("no table")
    assert learned(f"csv:{folder}", tmp_path / "out") == expected(rows)


def test_row_in_another_encoding_is_rejected_alone(tmp_path):
    rows, path = rows_of("cp949"), tmp_path / "t.csv"
    path.write_bytes(text_of(rows).encode("cp949") + b"\xff\xff,1,2\nx,3,4\n")
    options = {"dialect": {"encoding": "cp949"}, "max_rejected_fraction": 0.1}
    dataset = write("", tmp_path / "out", source=f"csv:{path}", **COLUMNS, **options)
    assert list(rejected(dataset.uri)) == ["t.csv:92"]
    assert len(read_rows(dataset)) == 91


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ({"delimeter": ";"}, "takes no 'delimeter'; did you mean 'delimiter'?"),
        ({"encoding": "latin9x"}, "encoding='latin9x' is not an encoding of text"),
        ({"encoding": "idna"}, "encoding='idna' is not an encoding of text"),
        ({"delimiter": "::"}, "delimiter='::' is not one sign of ASCII"),
        ({"quote": "`"}, "quote='`' is not one of '\"', \"'\", ''"),
        ({"skip_rows": -1}, "skip_rows=-1 is out of range"),
        ({"sheet": "a"}, "takes no 'sheet'"),
    ],
)
def test_dialect_that_is_none_is_refused(tmp_path, dialect, words):
    (tmp_path / "t.csv").write_text(text_of(rows_of()), encoding="utf-8")
    source = f"csv:{tmp_path / 't.csv'}"
    assert words in refused(learned, source, tmp_path / "out", dialect=dialect)


def test_cut_blocks_leave_out_the_rows_above_and_below(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("one\ntwo\na,b\n" + "".join(f"{n},x\n" for n in range(500)) + "Total,\nend,\n")
    dialect = Dialect(skip_rows=2, footer_rows=2)
    for size in (5, 64, 1000, 10**6):
        monkeypatch.setattr(csv_text, "BLOCK_BYTES", size)
        blocks = list(csv_text.read_blocks(str(path), 0, ["a", "b"], dialect))
        read = [block.read(["a"]) for block in blocks]
        values = [value for rows in read for value in rows.columns["a"].to_pylist()]
        assert values == [str(n) for n in range(500)], size
        assert [line for rows in read for line in rows.numbers] == list(range(4, 504))


def test_unclosed_quote_is_found_by_the_lines_it_spans(tmp_path):
    lines = ["a,b", *(f"{n},x" for n in range(50)), '1,"y', *(f"{n},x" for n in range(80)), '2,z"']
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    (block,) = csv_text.read_blocks(str(path), 0, ["a", "b"])
    assert block.find_longest_row() == (52, 82)


def test_misplaced_quotes_do_not_change_the_rows_beside_them(tmp_path):
    kinds_of_rows = [
        '5" pipe,{n}',
        'a""b,{n}',
        '"a, ""b""",{n}',
        '"x\ny",{n}',
        '"open,{n}',
        "z,{n}",
    ]
    lines = [kinds_of_rows[n % 6].format(n=n) for n in range(600)]
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "\n".join(lines) + "\n")
    blocks = csv_text.read_blocks(str(path), 0, ["a", "b"])
    read = [block.read(["a", "b"]) for block in blocks]
    values = [
        pair
        for rows in read
        for pair in zip(*map(pa.Array.to_pylist, rows.columns.values()), strict=True)
    ]
    texts = ['5" pipe', 'a""b', 'a, "b"', "x\ny", None, "z"]
    assert values == [(texts[n % 6], str(n)) for n in range(600) if n % 6 != 4]
    assert sum(len(rows.rejections) for rows in read) == 100


def test_lines_of_json_are_the_rows_of_the_plain_file(tmp_path):
    rows = rows_of()
    names = ("city", "area", "price")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    lines[5] = '{"price": 7, "area": null, "more": {"x": 1}}'
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join([*lines, "", "[1]", "{"]))
    options = {"max_rejected_fraction": 0.1}
    dataset = write("", tmp_path / "out", source=f"jsonl:{path}", **COLUMNS, **options)
    read = {row["key"].decode(): row for row in read_rows(dataset)}
    assert len(read) == 90 and set(read["t.jsonl:6"]) == {"label", "key"}
    assert read["t.jsonl:90"]["city"].decode() == rows[-1][0]
    assert rejected(dataset.uri)["t.jsonl:92"] == "row is not an object of JSON"
    nested = COLUMNS | {"columns": [{"name": "more", "type": "vocabulary"}]}
    message = refused(write, "", tmp_path / "no", source=f"jsonl:{path}", **nested, **options)
    assert "column 'more' contains objects" in message


def test_half_characters_of_json_are_rejected_and_late_names_told(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_text, "BLOCK_BYTES", 60_000)
    names = ("city", "area", "price")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows_of()]
    lines[4] = '{"city": "\\ud83d", "area": 1, "price": 2}'
    lines[79] += " " * 70_000  # The row after it is in the second block.
    lines[80] = '{"city": "a", "area": 1, "price": 2, "rooms": 3}'
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines))
    options = {"max_rejected_fraction": 0.1}
    dataset = write("", tmp_path / "out", source=f"jsonl:{path}", **COLUMNS, **options)
    assert len(read_rows(dataset)) == 89
    reasons = rejected(dataset.uri)
    assert reasons["t.jsonl:5"] == "row has half of a surrogate pair, which is not text"
    left_out = propose_for(f"jsonl:{path}", "price").left_out
    assert left_out["rooms"].startswith("begins only in t.jsonl:")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{\n "a": 1\n}\n', "t.jsonl:1: row is not JSON: "),
        (b'{"a": 1}{"a": 2}', "on its own line: jq -c . FILE"),
        (b"a,b\n1,2\n", "or use csv:"),
        ('{"a": 1}\n'.encode("utf-16"), "is in UTF-16, not in utf-8; save it in UTF-8"),
        (('{"a": "ö"}\n' * 20).encode("cp1252"), "is not in UTF-8; save it in UTF-8"),
        (b'{"a": 1}\r' * 20, "lines that end in CR alone; save it in UTF-8, with LF"),
    ],
)
def test_other_text_than_lines_of_json_is_refused_with_a_remedy(tmp_path, content, words):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    assert words in refused(learned, f"jsonl:{path}", tmp_path / "out")


@pytest.mark.parametrize("tags", [["a", "b"], [1, 2], [1990, 1991, 1992], ["x;y", "z"]])
def test_column_of_lists_is_proposed_as_several_labels(tmp_path, tags):
    path = tmp_path / "t.jsonl"
    rows = ({"x": n // 3, "tags": tags[n % len(tags) :][: 1 + n % 2]} for n in range(200))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    opened = kinds()["jsonl"].open(
        str(path), write_options(f"jsonl:{path}", dialect={}, names=["x", "tags"])
    )
    label = {"column": "tags", "type": "multilabel"}
    assert proposal.propose(opened, "", "tags").label == label
    columns = [{"name": "x", "type": "numeric"}]
    source = f"jsonl:{path}"
    message = refused(
        write,
        "",
        tmp_path / "out",
        source=source,
        columns=columns,
        crosses=[],
        label={"column": "tags"},
    )
    assert "column 'tags' contains lists" in message and 'type = "multilabel"' in message


def test_lists_of_json_are_labels(tmp_path):
    path = tmp_path / "t.jsonl"
    tags = [["a", "b"], ["b"], [], ["c", "a"]]
    path.write_text("".join(json.dumps({"x": n, "tags": tags[n % 4]}) + "\n" for n in range(200)))
    columns = [{"name": "x", "type": "numeric"}]
    label = {"column": "tags", "type": "multilabel"}
    source = f"jsonl:{path}"
    dataset = write("", tmp_path / "out", source=source, columns=columns, crosses=[], label=label)
    assert dataset.classes == ["a", "b", "c"]


def workbook(path: Path, sheets: dict[str, list[list]], hidden: str = "") -> None:
    """Write a workbook; a text that begins with = is a number with the format of dates."""
    types = "http://schemas.openxmlformats.org"
    main, office = f"{types}/spreadsheetml/2006/main", f"{types}/officeDocument/2006/relationships"

    def cell(at: str, value: object) -> str:
        if isinstance(value, (int, float)):
            return f'<c r="{at}"><v>{value}</v></c>'
        if str(value).startswith("="):
            return f'<c r="{at}" s="1"><v>{value[1:]}</v></c>'  # type: ignore[index]
        return f'<c r="{at}" t="inlineStr"><is><t>{value}</t></is></c>' if value else ""

    listed = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="r{n}" '
        f'state="{"hidden" if name == hidden else "visible"}"/>'
        for n, name in enumerate(sheets, 1)
    )
    relations = "".join(
        f'<Relationship Id="r{n}" Type="{office}/worksheet" Target="worksheets/s{n}.xml"/>'
        for n in range(1, len(sheets) + 1)
    )
    relations += f'<Relationship Id="r0" Type="{office}/styles" Target="styles.xml"/>'
    package = f'<Relationships xmlns="{types}/package/2006/relationships">'
    first = f'<Relationship Id="r1" Type="{office}/officeDocument" Target="xl/workbook.xml"/>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{types}/package/2006/content-types"/>',
        "_rels/.rels": f"{package}{first}</Relationships>",
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}">'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f"{package}{relations}</Relationships>",
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><cellXfs><xf numFmtId="0"/>'
        '<xf numFmtId="14"/></cellXfs></styleSheet>',
    }
    for n, rows in enumerate(sheets.values(), 1):
        lines = "".join(
            f'<row r="{y}">{"".join(cell(f"{chr(65 + x)}{y}", v) for x, v in enumerate(row))}</row>'
            for y, row in enumerate(rows, 1)
        )
        parts[f"xl/worksheets/s{n}.xml"] = (
            f'<worksheet xmlns="{main}"><sheetData>{lines}</sheetData></worksheet>'
        )
    with zipfile.ZipFile(path, "w") as file:
        for name, text in parts.items():
            file.writestr(name, f'<?xml version="1.0"?>{text}')


def test_sheet_of_a_workbook_is_the_rows_of_the_plain_file(tmp_path):
    rows = rows_of()
    path = tmp_path / "t.xlsx"
    title, total = ["Sales of 2024", "", ""], ["Total", "", 999999]
    table = [["city", "area", "price"], *([city, float(a), p] for city, a, p in rows)]
    workbook(path, {"sold": [title, [], *table, [], total], "days": [["day", "n"], ["=45292", 7]]})
    found = kinds()["excel"].sniff(str(path))
    assert found.dialect.settings == {"skip_rows": 2, "footer_rows": 1}
    assert found.notes[-1] == "other sheets are not read: days"
    source = f"excel:{path}"
    assert learned(source, tmp_path / "out", dialect=found.dialect.settings) == expected(rows)
    message = refused(learned, source, tmp_path / "no", dialect={"skip_rows": 2})
    assert "its row 'Total,,999999' is a total, not an example; " in message
    days = kinds()["excel"].open(
        str(path), write_options(source, dialect={"sheet": "days"}, names=["day", "n"])
    )
    (block,) = days.blocks(0)
    assert block.read(["day", "n"]).columns["day"].to_pylist() == ["2024-01-01"]
    message = refused(learned, source, tmp_path / "no", dialect={"sheet": "day"})
    assert "has no sheet 'day'; did you mean 'days'?" in message
    assert f"is an Excel workbook; use excel:{path}" in refused(
        learned, f"csv:{path}", tmp_path / "no"
    )


@pytest.mark.parametrize("first", [[], [["Read me"], ["by Ann"]]])
def test_first_sheet_without_the_table_is_refused_with_the_sheet_that_has_it(tmp_path, first):
    table = [["city", "area", "price"], *rows_of()]
    path = tmp_path / "t.xlsx"
    workbook(path, {"notes": first, "more": [["x"]], "sold": table})
    message = refused(learned, f"excel:{path}", tmp_path / "no")
    assert "its sheet 'notes' " in message
    assert 'choose another, more or sold: --set \'dialect={"sheet": "sold"}\'' in message
    settings = {"sheet": "sold"}
    assert learned(f"excel:{path}", tmp_path / "out", dialect=settings) == expected(rows_of())


def test_hidden_sheet_is_not_the_first(tmp_path):
    path = tmp_path / "t.xlsx"
    table = [["city", "area", "price"], *rows_of()]
    workbook(path, {"lists": [["x"], ["y"]], "sold": table}, hidden="lists")
    assert kinds()["excel"].sniff(str(path)).notes == ["other sheets are not read: lists"]
    assert learned(f"excel:{path}", tmp_path / "out") == expected(rows_of())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "is text; use csv:"),
        ("a\tb\n1\t2\n".encode("utf-16"), "is text; use csv:"),
        (b"<html><table></table></html>", "is a web page or XML; open it in Excel, and save it as"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "can't be read as an Excel workbook"),
    ],
)
def test_file_that_is_named_like_a_workbook_is_refused_with_a_remedy(tmp_path, content, words):
    path = tmp_path / "t.xls"
    path.write_bytes(content)
    assert words in refused(learned, f"excel:{path}", tmp_path / "out")
    assert words in refused(kinds()["excel"].sniff, str(path))


def write_options(source: str, dialect: dict, names: list[str]):
    from trainer import fields
    from trainer.data.write.record_options import RecordOptions

    *columns, label = names
    described = {
        "columns": [{"name": name, "type": "vocabulary"} for name in columns],
        "label": {"column": label, "type": "numeric"},
    }
    return fields.build(RecordOptions, {"source": source, "dialect": dialect, **described})
