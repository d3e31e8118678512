// Runs in a page: the faults of its layout, colours and charts that a program can see. It stands alone, because its text is
// sent to the browser.
export function inspect(width) {
  // WCAG 2.2: 1.4.3 for text, 1.4.11 for marks and lines.
  const TEXT_CONTRAST_MIN = 4.5;
  const MARK_CONTRAST_MIN = 3;
  // The size of text in a chart, in pixels of the screen.
  const CHART_TEXT_MIN = 9.5;
  const faults = [];

  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = (colour) => {
    const [red, green, blue] = channels(colour).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      const [, , , alpha = 1] = channels(colour);
      if (alpha > 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const words = (element) => element.textContent.trim().slice(0, 40);
  const label = (figure) => words(figure.querySelector("figcaption") ?? figure);

  const { scrollWidth, scrollHeight } = document.scrollingElement;
  if (scrollWidth > width) faults.push(`the document is ${scrollWidth} px wide in a window of ${width}`);
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  const holder = (element) => (element && !scrolls(element) ? holder(element.parentElement) : element);
  for (const element of document.body.querySelectorAll("*:not(svg *)")) {
    const { right, width: own } = element.getBoundingClientRect();
    if (own > 0 && right > width + 1 && !holder(element.parentElement)) {
      faults.push(`<${element.tagName.toLowerCase()}> ends at ${Math.round(right)} px: ${words(element)}`);
    }
  }

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest("title")) continue;
    const style = getComputedStyle(element);
    const found = contrast(element.closest("svg") ? style.fill : style.color, ground(element));
    if (found < TEXT_CONTRAST_MIN) faults.push(`contrast ${found.toFixed(1)} of "${words(element)}"`);
  }

  const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const look = (element) => [...element.classList].find((name) => /^s\d$/.test(name));
  const figures = [...document.querySelectorAll("figure")];
  for (const figure of figures) {
    const chart = figure.querySelector("svg[role=img]");
    if (!chart) {
      faults.push(`no drawing in ${label(figure)}`);
      continue;
    }
    const frame = chart.getBoundingClientRect();
    const notes = [...chart.querySelectorAll("text")];
    const boxes = notes.map((text) => text.getBoundingClientRect());
    notes.forEach((text, index) => {
      const size = parseFloat(getComputedStyle(text).fontSize) * chart.getScreenCTM().a;
      if (size < CHART_TEXT_MIN) faults.push(`text of ${size.toFixed(1)} px in ${label(figure)}: ${words(text)}`);
      const box = boxes[index];
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
        faults.push(`"${words(text)}" leaves the drawing of ${label(figure)}`);
      }
      notes.slice(index + 1).forEach((other, behind) => {
        if (overlap(box, boxes[index + 1 + behind])) faults.push(`"${words(text)}" covers "${words(other)}" in ${label(figure)}`);
      });
    });
    for (const mark of chart.querySelectorAll(".dot, .line, .bar, .mark")) {
      const style = getComputedStyle(mark);
      const colour = style.fill === "none" || mark.matches(".line, .mark") ? style.stroke : style.fill;
      const found = colour === "none" ? 1 : contrast(colour, ground(figure));
      if (found < MARK_CONTRAST_MIN) faults.push(`contrast ${found.toFixed(1)} of a ${mark.classList} in ${label(figure)}`);
    }
    // Points of a series have a shape, which the legend has too, beside a word.
    const shapes = new Map();
    for (const key of figure.querySelectorAll(".legend .key")) {
      const shape = key.querySelector("svg.sample path")?.getAttribute("d");
      if (!shape || !words(key)) faults.push(`a series without a shape or a word in the legend of ${label(figure)}`);
      if (shapes.has(shape)) faults.push(`two series with one shape in ${label(figure)}`);
      shapes.set(shape, look(key));
    }
    for (const dot of chart.querySelectorAll("path.dot")) {
      if (!shapes.has(dot.getAttribute("d"))) faults.push(`a point that the legend of ${label(figure)} does not have`);
    }
    for (const line of chart.querySelectorAll("polyline.line")) {
      if (![...shapes.values()].includes(look(line))) faults.push(`a line that the legend of ${label(figure)} does not have`);
    }
    // A bar and an interval have their word beside them.
    const lines = chart.querySelectorAll(".bar, circle.dot").length;
    if (!shapes.size && notes.length < lines) faults.push(`bars or intervals without words in ${label(figure)}`);
    if (!shapes.size && !lines) faults.push(`nothing is drawn in ${label(figure)}`);
  }
  if (document.body.innerText.trim().length < 200 || !document.querySelector("h1")) faults.push("the page is empty");
  return {
    height: scrollHeight,
    ground: getComputedStyle(document.body).backgroundColor,
    figures: figures.length,
    tables: document.querySelectorAll("table").length,
    faults: [...new Set(faults)],
  };
}
