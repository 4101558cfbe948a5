"""Step bar: the slider over hardware steps, run by report.js, or a sentence that says how to get one."""

from nwcompile.report.html_markup import Markup, join, tag

FIGURES = {"busy_cycles": "busy time", "synops": "synops", "spikes_out": "spikes", "messages_in": "messages in"}


def step_bar(docs: list[dict]) -> Markup:
    """Render the bar for the runs of a page, hidden until report.js runs, or a sentence if there are no steps."""
    by_step = [doc["by_step"] for doc in docs]
    texts = dict.fromkeys(text for steps in by_step for text in (steps["missing"], steps["left_out"]) if text)
    said = [tag("p", text, class_="steps-note") for text in texts]
    n_steps = max(steps["n_steps"] for steps in by_step)
    if not all(steps["n_steps"] for steps in by_step):
        return join(said)
    figures = [name for name in FIGURES if all(name in steps["cores"] for steps in by_step)]
    options = [tag("option", FIGURES[name], value=name) for name in figures]
    slider = tag("input", type="range", min=0, max=n_steps - 1, step=1, value=0)
    parts = [
        _step_button("mean", "Mean of all steps", aria_pressed="true"),
        _step_button("back", "‹", aria_label="one step back"),
        tag("label", "Hardware step ", slider),
        _step_button("on", "›", aria_label="one step on"),
        tag("label", "Cores by ", tag("select", *options)),
        tag("output", "mean of all steps"),
    ]
    bar = tag("div", *parts, class_="steps-bar", role="group", aria_label="Hardware step that is shown", hidden="")
    return join([bar, *said])


def _step_button(do: str, text: str, **attributes) -> Markup:
    return tag("button", text, type="button", data_do=do, **attributes)
