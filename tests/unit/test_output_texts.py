"""F84: long outputs, secrets in outputs that arrive in parts, and the colours of a terminal."""

import io
import logging
import random
import re
import sys
import threading
from unittest.mock import MagicMock

import pytest

from cronledger.engine.running import capturing
from cronledger.engine.running.output import Capture
from cronledger.rules.long_text import LongText
from cronledger.rules.masks import StreamMask, redacted, redacted_tail
from cronledger.rules.outcome import lease_over
from cronledger.web.ansi import Ansi, last_lines, shown

HIDDEN = ("hunter2&<", "ter2", "2x", 'q"\\z')


@pytest.mark.parametrize("seed", range(100))
def test_a_text_in_parts_is_masked_as_in_one(seed: int) -> None:
    """Whatever the parts, and what is held back is only what may be the beginning of a secret."""
    chance = random.Random(seed)
    pieces = [*HIDDEN, *redacted_spellings(), "h", "hun", "2", "\\", "a", "\n"]
    text = "".join(chance.choices(pieces, k=chance.randint(1, 12)))
    mask, found, place = StreamMask(HIDDEN), "", 0
    while place < len(text):
        size = chance.randint(1, 5)
        found += mask.feed(text[place : place + size])
        place += size
    found += mask.feed("\n\n")
    assert found == redacted(text + "\n\n", HIDDEN)


def redacted_spellings() -> list[str]:
    return ["hunter2%26%3C", "hunter2&amp;&lt;", 'q\\\\"\\\\\\\\z', "hun\\ter2&<"]


def test_a_line_without_secret_is_shown_at_once() -> None:
    mask = StreamMask(("hunter2",))
    assert mask.feed("password? ") == "password? "
    assert mask.feed("it is hun") == "it is "
    assert mask.feed("dred") == "hundred"


def test_what_a_gap_leaves_of_a_secret_is_not_shown() -> None:
    mask = StreamMask(("hunter2",))
    assert mask.feed("a hun") == "a "
    after, missing = mask.after_gap("ter2 " + "é" * 200, 1000)
    assert "ter2" not in after and after.endswith("ééé")
    assert missing + len(after.encode()) == len("hun") + 1000 + len("ter2 ") + 400
    mask = StreamMask(("hunter2",))
    assert mask.after_gap("x" * 80 + "hunter2 tail", 5) == (" tail", 92)


def test_beginning_and_end_of_a_long_text_are_kept() -> None:
    text = LongText(64)
    text.add("begin")
    text.add("é" * 10 + "\0\ud800")
    assert text.text() == "begin" + "é" * 10
    for _ in range(100):
        text.add("0123456789")
    text.add("end")
    assert text.text() == (
        "begi\n[cronledger: 964 bytes of the output are left out]\n"
        + ("0123456789" * 6)[3:] + "end"
    )  # fmt: skip


def test_what_was_lost_before_a_part_counts_as_left_out() -> None:
    text = LongText(64)
    text.add("begin")
    text.add("end", 1000)
    assert text.text() == "begi\n[cronledger: 1,001 bytes of the output are left out]\nend"
    assert redacted_tail("key=hunter2;öü", (), 3, 70) == (
        "[cronledger: 84 bytes of the output are left out]\nü"
    )
    assert redacted_tail("all", (), 5) == "all"


def test_no_part_of_a_secret_stays_at_the_beginning_of_a_tail() -> None:
    text = "hunter2\n" * 1000  # the masks are shorter, so all of it fits into the limit
    for cut in range(1, 8):
        shown = redacted_tail(text[cut:], ("hunter2",), len(text), cut)
        assert set(shown.partition("left out]\n")[2]) == {"*", "\n"}


def test_the_lines_between_the_chunks_account_for_all_that_was_written() -> None:
    lost, written, stored = 0, 0, dict[int, str]()
    capture = Capture(MagicMock(), MagicMock(limit=640, lock=threading.RLock()))
    for part, before in (("a" * 30, 0), ("b" * 2000, 0), ("c" * 500, 3000), ("d" * 90, 0)) * 3:
        capture.write(part, before)
        lost, written = lost + before, written + len(part)
        chunk = capture.chunk()
        assert chunk is not None and not capture.settled()
        if chunk.gap_from is not None and chunk.gap_through is not None:
            for number in range(chunk.gap_from, chunk.gap_through):
                stored.pop(number, None)
            stored[chunk.gap_through] = chunk.gap_text or ""
        stored[chunk.number] = chunk.text
    mark = r"\n\[cronledger: ([\d,]+) bytes of the output are left out\]\n"
    shown = "".join(stored[number] for number in sorted(stored))
    missing = sum(int(count.replace(",", "")) for count in re.findall(mark, shown))
    assert len(re.sub(mark, "", shown)) + missing == lost + written


def test_colours_are_classes_and_other_sequences_are_left_out() -> None:
    assert shown("a\x1b[1;31mb<\x1b[0mc\x1b[2K\x1b]0;title\x07\rd\x08") == (
        'a<span class="bold fg-red">b&lt;</span>c\nd'
    )
    assert shown("\x1b[38;5;9;4mx\x1b[24;103my\x1b[mz") == (
        '<span class="fg-red underline">x</span><span class="bg-yellow fg-red">y</span>z'
    )
    assert shown("\x1b[38;2;255;100;0ma\x1b[48;5;33mb\x1b[38;5;250;48;2;9;9;9mc\x1b[38;5m") == (
        '<span class="fg-red">a</span><span class="bg-blue fg-red">b</span>c'
    )
    assert shown("\x1b[" + "9" * 50 + "mx\x1b[?25l\x1b[99m") == "x"
    assert shown("a\u202eb") == "a\\u202eb"


def test_a_record_with_wrong_arguments_is_captured_as_it_is() -> None:
    record = logging.LogRecord("shop", logging.INFO, "", 1, "%d rows", ("x",), None)
    captured: list[str] = []
    capture = MagicMock(write=captured.append)
    with capturing.captured(capture):
        capturing._record(lambda: record)()
    assert captured == ["INFO shop: '%d rows'\n"]


def test_a_stream_that_the_program_has_replaced_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []
    own = io.StringIO()
    capturing.install()
    try:
        monkeypatch.setattr(sys, "stdout", own)
        capturing.install()
        with capturing.captured(MagicMock(write=written.append)):
            print("of the handler")
        capturing.uninstall()
    finally:
        capturing.uninstall()
    assert "".join(written) == "of the handler\n"
    assert sys.stdout is own


def test_an_end_without_output_keeps_what_was_written() -> None:
    """The supervisor of a command has died, and brings nothing any more."""
    capture = Capture(MagicMock(), MagicMock(lock=threading.RLock(), limit=1000))
    capture.write("half of it")
    assert capture.end(lease_over("supervisor_died", "")).output == "half of it"
    assert capture.end(lease_over("supervisor_died", "all")).output == "all"


def test_a_sequence_may_be_split_over_two_parts() -> None:
    ansi = Ansi()
    assert ansi.feed("a\x1b[3") == "a"
    assert ansi.feed("2mb\x1b") == '<span class="fg-green">b</span>'
    assert ansi.feed("[0mc") == "c"
    assert last_lines("\x1b[31m1\n2\n3\n", 2) == '<span class="fg-red">2\n3</span>'
