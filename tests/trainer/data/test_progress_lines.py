import pytest

from trainer.data.write.writing_progress import ProgressLines, duration


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_about_every_second_says_how_far_how_fast_and_how_long_still():
    clock, lines = Clock(), []
    progress = ProgressLines(
        "create_tfrecords", "images", total=1800, emit=lines.append, clock=clock
    )
    for _ in range(12):
        clock.now += 0.25
        progress.advance(100)
    assert lines == [
        "create_tfrecords: 400/1,800 images, 400 images/s, 0:04 left",
        "create_tfrecords: 800/1,800 images, 400 images/s, 0:02 left",
        "create_tfrecords: 1,200/1,800 images, 400 images/s, 0:02 left",
    ]


@pytest.mark.parametrize(
    ("unit", "total", "done", "line"),
    [
        # The time left is not shown before anything is done.
        ("images", {"total": 9}, 0, "0/9 images, 0 images/s"),
        ("images", {}, 3000, "3,000 images listed, 1,500 images/s"),
        ("rows", {}, 1, "1 row listed, 0 rows/s"),
    ],
)
def test_the_line_after_two_seconds_says_what_is_known(unit, total, done, line):
    clock, lines = Clock(), []
    progress = ProgressLines("create_tfrecords", unit, **total, emit=lines.append, clock=clock)
    clock.now = 2.0
    progress.advance(done)
    assert lines == [f"create_tfrecords: {line}"]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (2.4, "0:02"), (754, "12:34"), (3723, "1:02:03")]
)
def test_durations_read_like_a_clock(seconds, shown):
    assert duration(seconds) == shown
