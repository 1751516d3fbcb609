// Draws the charts of the report and lets the reader zoom them. Runs under a policy that forbids network and eval.
const specs = JSON.parse(document.getElementById("specs").textContent);
const views = [];

const options = {
  ast: true, // expressions are interpreted: the page's policy forbids eval
  actions: false,
  renderer: "svg",
  defaultStyle: false,
  tooltip: { theme: "report", disableDefaultStyle: true },
};

function widthOf(holder) {
  return Math.max(260, Math.floor(holder.clientWidth) - 2);
}

async function draw(figure) {
  const spec = specs[figure.id];
  const holder = figure.querySelector(".holder");
  spec.width = widthOf(holder);
  try {
    const { view } = await vegaEmbed(holder, spec, options);
    // The holder says in a sentence what the chart shows, and a table has its figures: its marks need not be read out.
    holder.querySelector("svg").setAttribute("aria-hidden", "true");
    const full = [view.signal("lo"), view.signal("hi")];
    views.push({ view, holder, lanes: spec.usermeta?.lanes, half: figure.matches("#loader .charts > :not(:only-child)") });
    zooming(figure, holder, view, full);
    figure.dataset.drawn = "yes";
  } catch (error) {
    console.error(`chart ${figure.id}: ${error}`);
    holder.textContent = "This chart cannot be drawn here; its table has the figures.";
    figure.dataset.drawn = "no";
    for (const details of figure.querySelectorAll("details")) details.open = true;
  }
}

function zooming(figure, holder, view, full) {
  const bar = figure.querySelector(".zoom");
  if (!bar) return;
  const least = (full[1] - full[0]) / 5000;
  const show = (lo, hi) => {
    const width = Math.min(Math.max(hi - lo, least), full[1] - full[0]);
    const low = Math.min(Math.max(lo, full[0]), full[1] - width);
    view.signal("lo", low).signal("hi", low + width).runAsync();
    figure.dataset.lo = low;
    figure.dataset.hi = low + width;
  };
  const now = () => [view.signal("lo"), view.signal("hi")];
  const scaled = (factor, at) => {
    const [lo, hi] = now();
    const middle = at === undefined ? (lo + hi) / 2 : at;
    show(middle - (middle - lo) * factor, middle + (hi - middle) * factor);
  };
  const moved = (share) => {
    const [lo, hi] = now();
    show(lo + share * (hi - lo), hi + share * (hi - lo));
  };
  const actions = {
    in: () => scaled(0.5),
    out: () => scaled(2),
    back: () => moved(-0.5),
    on: () => moved(0.5),
    all: () => show(full[0], full[1]),
  };
  bar.hidden = false;
  bar.addEventListener("click", (event) => actions[event.target.dataset.do]?.());

  const valueAt = (event) => {
    const box = holder.getBoundingClientRect();
    const [lo, hi] = now();
    const share = (event.clientX - box.left - view.origin()[0]) / view.width();
    return lo + share * (hi - lo);
  };
  holder.addEventListener("dblclick", actions.all);
  holder.addEventListener(
    "wheel",
    (event) => {
      if (!event.shiftKey) return; // a plain wheel scrolls the page
      event.preventDefault();
      scaled((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, valueAt(event));
    },
    { passive: false },
  );
  let held = null;
  holder.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) held = { x: event.clientX, span: now() };
  });
  window.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [lo, hi] = held.span;
    const by = ((held.x - event.clientX) / view.width()) * (hi - lo);
    show(lo + by, hi + by);
  });
  window.addEventListener("pointerup", () => (held = null));
}

function fit() {
  for (const { view, holder } of views) {
    const width = widthOf(holder);
    if (Math.abs(width - (view.__asked ?? 0)) < 2) continue;
    view.__asked = width;
    view.signal("width", width).runAsync();
  }
}

// Paper has its own size, and a chart is drawn for it: shrunk letters cannot be read.
const paper = { width: 860, half: 430, height: 96, lane: 17 };
window.addEventListener("beforeprint", () => {
  for (const one of views) {
    one.screen = [one.view.signal("width"), one.view.signal("height")];
    const height = Math.min(one.screen[1], Math.max(paper.height, paper.lane * (one.lanes ?? 0) + 36));
    one.view.signal("width", one.half ? paper.half : paper.width).signal("height", height).run();
  }
});
window.addEventListener("afterprint", () => {
  for (const one of views) {
    if (one.screen) one.view.signal("width", one.screen[0]).signal("height", one.screen[1]).run();
  }
});

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

let due;
window.addEventListener("resize", () => {
  clearTimeout(due);
  due = setTimeout(fit, 120);
});

Promise.all([...document.querySelectorAll("figure[data-chart]")].map(draw)).then(() => {
  document.documentElement.dataset.ready = "yes";
});
