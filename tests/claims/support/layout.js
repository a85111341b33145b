// What is wrong with how the page lies: an array of sentences, empty when nothing is.
(() => {
  const problems = [];
  const say = text => { if (problems.length < 40) problems.push(text); };
  const shown = element => { const box = element.getBoundingClientRect(); return box.width > 0 && box.height > 0; };
  const name = element => `${element.tagName} ${JSON.stringify((element.textContent || "").trim().slice(0, 40))}`;
  const page = document.documentElement;
  const width = page.clientWidth;
  if (page.scrollWidth > width + 1) {
    say(`the page is ${page.scrollWidth} px wide in a window of ${width} px`);
    for (const element of document.querySelectorAll("main *"))
      if (!element.closest(".wide,pre") && element.getBoundingClientRect().right > width + 1) say(`sticks out: ${name(element)}`);
  }
  // What may be wider than the page scrolls in a frame of its own.
  for (const element of document.querySelectorAll("main > *, main p, main h1, main h2, main h3, main figcaption, main li, main dd, main dt")) {
    const box = element.getBoundingClientRect();
    if (shown(element) && !element.closest(".wide") && (box.left < -1 || box.right > width + 1)) say(`outside the page: ${name(element)}`);
  }
  let drawings = 0, texts = 0, marks = 0;
  for (const svg of document.querySelectorAll("svg")) {
    if (!shown(svg)) { if (!svg.closest("details:not([open])")) say(`not drawn: ${svg.getAttribute("aria-label")}`); continue; }
    drawings += 1;
    const label = svg.getAttribute("aria-label") || svg.getAttribute("class") || "a drawing";
    const frame = svg.getBoundingClientRect();
    const view = svg.viewBox.baseVal;
    for (const shape of svg.querySelectorAll("path,rect,circle,line,polygon,polyline")) {
      const box = shape.getBBox();
      if (![box.x, box.y, box.width, box.height].every(Number.isFinite)) say(`${label}: a shape without a place`);
      else if (box.width + box.height > 0) {
        marks += 1;
        const slack = 2;
        if (box.x < view.x - slack || box.y < view.y - slack || box.x + box.width > view.x + view.width + slack || box.y + box.height > view.y + view.height + slack)
          say(`${label}: a ${shape.tagName}.${shape.getAttribute("class")} lies outside its frame`);
      }
    }
    const labels = [...svg.querySelectorAll("text")].filter(text => text.textContent.trim()).map(text => ({ text, box: text.getBoundingClientRect() }));
    for (const { text, box } of labels) {
      texts += 1;
      if (box.width === 0) say(`${label}: ${name(text)} is not drawn`);
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        say(`${label}: ${name(text)} is cut off`);
    }
    for (let i = 0; i < labels.length; i++) for (let k = i + 1; k < labels.length; k++) {
      const [a, b] = [labels[i].box, labels[k].box];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across <= 0 || down <= 0) continue;
      // Line boxes are taller than letters: only what covers a fifth of the smaller one is seen as an overlap.
      if (across * down > 0.2 * Math.min(a.width * a.height, b.width * b.height))
        say(`${label}: ${name(labels[i].text)} and ${name(labels[k].text)} lie over each other`);
    }
  }
  return { problems, drawings, texts, marks, text: document.body.innerText };
})()
