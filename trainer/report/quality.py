"""Sections on how good the model is: confusion, curves, calibration, classes."""

import base64
import io

import numpy as np
import PIL.Image
from markupsafe import Markup

from trainer.evaluation.metrics import Curve
from trainer.evaluation.scoring import Evaluation
from trainer.report import plots
from trainer.report.findings import mean_confidence
from trainer.report.markup import (
    bar,
    columns,
    count,
    decimal,
    facts,
    figure,
    join,
    name,
    percent,
    section,
    table,
    text_cell,
)

MATRIX_SHOWN = 20
CONFUSIONS_SHOWN = 10
_UPRIGHT_NAMES = 8  # letters a name, on average, that still fit above a column
_UPRIGHT_NAMES_ALL = 26  # letters of all names that fit above the columns on a phone
_WHITE_TEXT = 0.88  # the shade of blue from which white is easier to read than black
_RIGHT, _WRONG = (40, 125, 200), (220, 105, 25)


def confusion(evaluation: Evaluation) -> Markup:
    """As a table up to 20 classes, and as a picture with the commonest mistakes beyond."""
    matrix = np.array(evaluation.confusion_matrix)
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    lead = "Rows are the true classes, columns the predicted ones; colors are shares of a row."
    title = "Confusion matrix"
    if len(matrix) <= MATRIX_SHOWN:
        drawn = _matrix(evaluation.classes, matrix, shares)
        return section("confusion", title, drawn, lead=lead)
    heat = Markup(
        '<figure><img class="heat" alt="Confusion matrix of {} classes; the diagonal holds {} of '
        'the examples" src="{}"></figure>'
    ).format(len(matrix), percent(evaluation.accuracy), _heat(shares))
    return section(
        "confusion", title, columns(heat, _confusions(evaluation.classes, matrix)), lead=lead
    )


def _matrix(classes: list[str], matrix: np.ndarray, shares: np.ndarray) -> Markup:
    head = join(
        Markup('<th scope="col" title="{}">{}</th>').format(one, name(one)) for one in classes
    )
    lines = join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            name(one),
            join(
                _cell(int(matrix[row, column]), float(shares[row, column]), row == column)
                for column in range(len(classes))
            ),
        )
        for row, one in enumerate(classes)
    )
    letters = sum(map(len, classes))
    layout = "" if letters <= _UPRIGHT_NAMES_ALL else " crowded"
    if letters > _UPRIGHT_NAMES * len(classes):
        layout = " many"
    return Markup(
        '<div class="axis">predicted</div><div class="scroll" tabindex="0" role="region" '
        'aria-label="Confusion matrix"><table class="confusion{}" style="--cell:{}px"><thead>'
        "<tr><td></td>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(layout, max(36, min(76, 640 // len(classes))), head, lines)


def _cell(times: int, share: float, right: bool) -> Markup:
    # Mistakes are rare: the square root lets single ones be seen.
    shade = share if right else share**0.5
    kinds = (
        ["right"] * right + ["strong"] * (right and shade > _WHITE_TEXT) + ["zero"] * (times == 0)
    )
    return Markup('<td class="{}" style="--v:{}">{}</td>').format(
        " ".join(kinds), f"{shade:.3f}", f"{times:,}"
    )


def _heat(shares: np.ndarray) -> str:
    """A pixel a cell, transparent where it is empty, so that it fits light and dark alike."""
    pixels = np.zeros((*shares.shape, 4), np.uint8)
    pixels[..., :3] = _WRONG
    pixels[..., 3] = np.round(255 * np.sqrt(shares))
    diagonal = np.arange(len(shares))
    pixels[diagonal, diagonal, :3] = _RIGHT
    content = io.BytesIO()
    PIL.Image.fromarray(pixels, "RGBA").save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _confusions(classes: list[str], matrix: np.ndarray) -> Markup:
    wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:CONFUSIONS_SHOWN]
    rows = []
    for place in order:
        true, predicted = divmod(int(place), len(matrix))
        times = int(wrong[true, predicted])
        if times:
            share = times / int(matrix[true].sum())
            taken = text_cell(name(classes[predicted]))
            rows.append([name(classes[true]), taken, bar(f"{times:,}", share, 2)])
    if not rows:
        return Markup("<p>There was no mistake.</p>")
    head = ["True class", "Taken for", "Times"]
    return table(head, rows, caption="The commonest mistakes")


def curves(evaluation: Evaluation) -> Markup:
    """ROC and precision over recall, with every area in the legend."""
    title = "ROC and PR"
    if not evaluation.roc_curves:
        undefined = "Undefined: the split holds examples of a single class."
        return section("curves", title, lead=undefined)
    positive = evaluation.roc_curves[0].name
    lead: str | Markup = "Each class against the rest; figures are the areas under the curves."
    if len(evaluation.classes) == 2:
        lead = Markup("{} is the positive class; figures are the areas under the curves.").format(
            name(positive)
        )
    elif not positive:
        lead = "The mean of all classes, and the four of least area, each against the rest."
    return section(
        "curves",
        title,
        columns(
            figure(
                plots.roc(evaluation.roc_curves, f"ROC: {_areas(evaluation.roc_curves)}"),
                "ROC",
                _legend(evaluation.roc_curves),
            ),
            figure(
                plots.precision_recall(
                    evaluation.pr_curves, f"Precision over recall: {_areas(evaluation.pr_curves)}"
                ),
                "Precision over recall",
                _legend(evaluation.pr_curves),
            ),
        ),
        lead=lead,
    )


def _areas(drawn: list[Curve]) -> str:
    return ", ".join(f"{curve.name or 'mean'} has area {curve.area:.3f}" for curve in drawn)


def _legend(drawn: list[Curve]) -> list[tuple[int, Markup]]:
    return [
        (number, Markup("{} {}").format(name(curve.name or "mean"), decimal(curve.area)))
        for number, curve in enumerate(drawn, start=1)
    ]


def calibration(evaluation: Evaluation) -> Markup:
    """The reliability diagram, and the scores that reward honest probabilities."""
    confidence = mean_confidence(evaluation)
    error = percent(evaluation.expected_calibration_error)
    drawing = plots.reliability(
        evaluation.calibration,
        f"Accuracy over confidence; the expected calibration error is {error}",
    )
    figures = facts(
        [
            ("Expected calibration error", error),
            ("Mean confidence", percent(confidence)),
            ("Accuracy", percent(evaluation.accuracy)),
            ("Log loss", f"{evaluation.log_loss:.4f} nats"),
            ("Brier score", f"{evaluation.brier_score:.4f}"),
        ]
    )
    lead = (
        "Whether 90% confidence means being right 90% of the time. On the dotted line it does; "
        "below it the model is too sure of itself, above it too modest. Whiskers are 95% "
        "intervals: one that crosses the line proves neither."
    )
    return section(
        "calibration",
        "Calibration",
        columns(
            figure(drawing, "Accuracy and examples, by confidence"),
            Markup("<div><h3>In figures</h3>{}</div>").format(figures),
        ),
        lead=lead,
    )


def per_class(evaluation: Evaluation) -> Markup:
    """A row a class; beyond 20 the weakest come first, in a window that scrolls."""
    many = len(evaluation.classes) > MATRIX_SHOWN
    rows = list(evaluation.per_class)
    lead = f"Means over classes: precision {percent(evaluation.precision)}, recall "
    lead += f"{percent(evaluation.recall)}, F1 {percent(evaluation.f1)}."
    if many:
        rows.sort(key=lambda row: 2.0 if row.f1 is None else row.f1)
        lead += " The weakest come first."
    absent = [row for row in rows if not row.support]
    if absent:
        lead += f" {count(len(absent), 'class has', 'classes have')} no example in the split."
    return section(
        "classes",
        "Classes",
        table(
            ["Class", "Examples", "Predicted", "Precision", "Recall", "F1", "ROC AUC", "PR AUC"],
            [
                [
                    name(row.name),
                    f"{row.support:,}",
                    f"{row.predicted:,}",
                    bar(percent(row.precision), row.precision),
                    bar(percent(row.recall), row.recall),
                    bar(percent(row.f1), row.f1),
                    decimal(row.roc_auc),
                    decimal(row.pr_auc),
                ]
                for row in rows
            ],
            caption="Precision, recall and F1 of every class",
            tall=many,
        ),
        lead=lead,
    )
