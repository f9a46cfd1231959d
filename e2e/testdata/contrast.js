// Returns what on the page has too little contrast to what is behind it.
(() => {
  const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return context.getImageData(0, 0, 1, 1).data;
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255, c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ratio = (a, b) => {
    const [light, dark] = [luminance(rgba(a)), luminance(rgba(b))].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (rgba(colour)[3] === 255) return colour;
    }
    return "white";
  };
  const found = [];
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = words.nextNode(); node; node = words.nextNode()) {
    const e = node.parentElement;
    if (!node.data.trim() || !e.checkVisibility({ visibilityProperty: true }) || e.closest(":disabled, script, noscript, option")) continue;
    const has = ratio(getComputedStyle(e).color, behind(e));
    if (has < 4.5) found.push(`${has.toFixed(2)} of ${JSON.stringify(node.data.slice(0, 40))}`);
  }
  for (const e of document.querySelectorAll("button, input:not([type=radio]), select, textarea")) {
    const style = getComputedStyle(e);
    if (!e.checkVisibility() || e.disabled || rgba(style.borderTopColor)[3] === 0) continue;
    const has = ratio(style.borderTopColor, behind(e.parentElement));
    if (has < 3) found.push(`${has.toFixed(2)} of the border of ${e.outerHTML.slice(0, 60)}`);
    const hint = getComputedStyle(e, "::placeholder").color;
    if (e.placeholder && ratio(hint, behind(e)) < 4.5) found.push(`${ratio(hint, behind(e)).toFixed(2)} of the placeholder ${e.placeholder}`);
  }
  return found;
})()
