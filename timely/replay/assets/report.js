// The timeline: one row a robot, drawn on a canvas; wheel zooms, dragging moves, hovering explains.
(() => {
  const data = JSON.parse(document.getElementById("timeline-data").textContent);
  const canvas = document.getElementById("timeline"), tip = document.getElementById("tip");
  const context = canvas.getContext("2d");
  const LABEL = 96, AXIS = 22, ROW = 18;
  let begin = 0, end = Math.max(data.end, 1e-6), scroll = 0;
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const rows = data.robots.length;
  const width = () => canvas.clientWidth, height = () => canvas.clientHeight;
  const x = t => LABEL + (t - begin) / (end - begin) * (width() - LABEL);
  const y = row => AXIS + row * ROW - scroll;
  const clampView = () => {
    const span = Math.min(Math.max(end - begin, 0.01), data.end);
    begin = Math.min(Math.max(begin, 0), data.end - span); end = begin + span;
    scroll = Math.min(Math.max(scroll, 0), Math.max(0, rows * ROW - (height() - AXIS)));
  };
  function tickStep(span) {
    const raw = span / 8, size = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map(f => f * size).find(s => s >= raw);
  }
  function draw() {
    clampView();
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width() * ratio; canvas.height = height() * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width(), height());
    const ink = css("--ink"), soft = css("--soft"), rule = css("--rule");
    const colour = { urgent: css("--urgent"), normal: css("--normal"), wait: css("--wait") };
    context.font = "12px system-ui, sans-serif"; context.textBaseline = "middle";
    for (let row = 0; row < rows; row++) {
      if (y(row) < -ROW || y(row) > height()) continue;
      context.fillStyle = soft; context.textAlign = "left";
      context.fillText(data.robots[row].slice(0, 14), 4, y(row) + ROW / 2);
      context.fillStyle = rule; context.fillRect(LABEL, y(row) + ROW - 1, width() - LABEL, 0.5);
    }
    context.save(); context.beginPath(); context.rect(LABEL, AXIS, width() - LABEL, height() - AXIS); context.clip();
    for (const job of data.jobs) {
      const top = y(job.r);
      if (top < -ROW || top > height()) continue;
      const stop = job.s.length ? job.s[job.s.length - 1][1] : data.end;
      if (stop < begin || job.a > end) continue;
      let free = job.a;
      for (const [start, finish] of job.s) {
        if (start > free) { context.fillStyle = colour.wait; context.fillRect(x(free), top + 6, Math.max(1, x(start) - x(free)), ROW - 12); }
        context.fillStyle = job.u ? colour.urgent : colour.normal;
        context.fillRect(x(start), top + 3, Math.max(1, x(finish) - x(start) - 1), ROW - 6);
        free = finish;
      }
      if (!job.done) { context.fillStyle = colour.wait; context.fillRect(x(free), top + 6, x(data.end) - x(free), ROW - 12); }
      context.fillStyle = ink; context.fillRect(x(job.a), top + 2, 1, ROW - 4);
    }
    context.restore();
    context.clearRect(0, 0, width(), AXIS - 2);
    context.fillStyle = soft; context.textAlign = "center";
    const step = tickStep(end - begin);
    for (let t = Math.ceil(begin / step) * step; t <= end; t += step)
      if (x(t) > LABEL + 8) context.fillText(+t.toFixed(4) + " s", x(t), AXIS / 2);
  }
  function jobAt(px, py) {
    const row = Math.floor((py - AXIS + scroll) / ROW), t = begin + (px - LABEL) / (width() - LABEL) * (end - begin);
    let best = null;
    for (const job of data.jobs) {
      const stop = job.s.length ? job.s[job.s.length - 1][1] : data.end;
      if (job.r === row && t >= job.a - 2 * (end - begin) / width() && t <= stop) best = job;
    }
    return best;
  }
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    if (event.shiftKey) { scroll += event.deltaY; draw(); return; }
    const at = begin + Math.max(0, event.offsetX - LABEL) / (width() - LABEL) * (end - begin);
    const factor = Math.exp(event.deltaY * 0.0015);
    begin = at - (at - begin) * factor; end = at + (end - at) * factor;
    draw();
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", event => { held = [event.clientX, event.clientY, begin, end, scroll]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", event => {
    if (held) {
      const moved = (event.clientX - held[0]) / (width() - LABEL) * (held[3] - held[2]);
      begin = held[2] - moved; end = held[3] - moved; scroll = held[4] - (event.clientY - held[1]);
      draw(); return;
    }
    const job = jobAt(event.offsetX, event.offsetY);
    tip.style.display = job ? "block" : "none";
    if (job) {
      tip.textContent = `job ${job.j}: ${job.t} · arrived ${job.a.toFixed(3)} s · ` +
        (job.p === null ? "no response" : `response ${job.p.toFixed(3)} s`) + ` · utility ${job.v.toFixed(2)}`;
      tip.style.left = Math.min(event.clientX + 12, window.innerWidth - 390) + "px"; tip.style.top = event.clientY + 14 + "px";
    }
  });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  document.getElementById("all").addEventListener("click", () => { begin = 0; end = data.end; scroll = 0; draw(); });
  canvas.style.height = Math.min(480, AXIS + rows * ROW + 6) + "px";
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
