"""Progress lines tell how much is done, how fast, and the time left."""

import pytest

from trainer.data.write.writing_progress import ProgressLines
from trainer.formats import clock


def lines_after(steps, unit="images", **total):
    """Return the lines when steps of (seconds, number done) have passed."""
    now, lines = 0.0, []
    total |= {"emit": lines.append, "clock": lambda: now}
    progress = ProgressLines("create_tfrecords", unit, **total)
    for seconds, done in steps:
        now += seconds
        progress.advance(done)
    return [line.removeprefix("create_tfrecords: ") for line in lines]


def test_line_is_printed_about_every_second():
    assert lines_after([(0.25, 100)] * 12, total=1800) == [
        "400/1,800 images, 400 images/s, 3.5 s left",
        "800/1,800 images, 400 images/s, 2.5 s left",
        "1,200/1,800 images, 400 images/s, 1.5 s left",
    ]


def test_line_omits_what_is_unknown():
    assert lines_after([(2, 0)], total=9) == ["0/9 images"]
    assert lines_after([(2, 1)], "rows") == ["1 row listed"]
    assert lines_after([(0.5, 1000), (1, 3000)]) == ["4,000 images listed, 3,000 images/s"]


def test_speed_does_not_count_the_start_of_processes():
    assert lines_after([(9, 1), (1, 50)], total=101) == [
        "1/101 images",
        "51/101 images, 50 images/s, 1.0 s left",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0.0 s"), (2.44, "2.4 s"), (754, "12:34"), (3723, "1:02:03")]
)
def test_duration_reads_like_a_clock(seconds, shown):
    assert clock(seconds) == shown
