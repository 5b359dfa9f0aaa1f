'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const host = document.getElementById('plots');
  const readout = document.getElementById('readout');
  const NS = 'http://www.w3.org/2000/svg';
  const HUES = ['--a', '--b', '--c', '--d', '--e', '--f', '--g'];
  const MARGIN = { left: 46, right: 8 };
  const LEAST_S = 0.1;
  const whole = [0, Math.max(data.duration, LEAST_S)];
  let view = whole.slice();
  let cursor = null;
  let joint = 0;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const make = (name, attributes, parent) => {
    const node = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (parent) parent.appendChild(node);
    return node;
  };
  const label = (svg, x, y, text, attributes) => {
    make('text', { x, y, ...attributes }, svg).textContent = text;
  };

  const curve = (name, color, t, values) => ({ name, color, t, values });
  const plots = [
    { title: 'ticks by verdict', height: 62, spans: data.verdicts, names: data.verdict_names,
      color: (name) => `--${name}`, marks: true },
    { title: 'causes of ticks that were not fresh', height: 56, names: data.cause_names,
      spans: data.causes.filter((span) => data.cause_names[span[2]] !== 'none'),
      color: (name, index) => HUES[index % HUES.length] },
    { title: 'oldest frame behind a command: age, ms', height: 120, zero: true,
      curves: () => [curve('age', '--a', data.t, data.age_ms)] },
    { title: 'frame to its first command, ms, by chunk', height: 120, zero: true, dots: true,
      curves: () => [curve('reaction', '--b', data.chunk_t, data.reaction_ms)] },
    { title: 'stages of each chunk, ms', height: 130, zero: true, dots: true,
      curves: () => Object.entries(data.stages).map(([name, values], index) =>
        curve(name, HUES[index % HUES.length], data.chunk_t, values)) },
    { title: 'joint step at each chunk change, deg', height: 100, zero: true, dots: true,
      curves: () => [curve('seam', '--c', data.chunk_t, data.seam_deg)] },
    { title: 'command and measured', height: 140,
      curves: () => [curve('command', '--b', data.t, data.command[joint]),
        curve('measured', '--a', data.t, data.measured[joint])] },
    { title: 'tracking error, largest joint, deg', height: 100, zero: true,
      curves: () => [curve('error', '--f', data.t, data.error_deg)] },
  ];

  const ticksOf = (low, high, count) => {
    const raw = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i += 1) found.push(i * step);
    return [found, Math.max(0, -Math.floor(Math.log10(step)))];
  };
  const firstAt = (t, at) => {
    let low = 0;
    let high = t.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (t[middle] < at) low = middle + 1; else high = middle;
    }
    return low;
  };

  const draw = (plot) => {
    const width = Math.max(260, host.clientWidth);
    const svg = plot.svg;
    svg.replaceChildren();
    const entries = entriesOf(plot);
    const rows = layOut(entries, plot.title, width);
    const shift = rows.length && rows[0].y ? 16 * rows.at(-1).y : 0;
    svg.setAttribute('viewBox', `0 0 ${width} ${plot.height + 22 + shift}`);
    svg.setAttribute('height', plot.height + 22 + shift);
    legend(svg, rows);
    const right = width - MARGIN.right;
    const x = (s) => MARGIN.left + (s - view[0]) / (view[1] - view[0]) * (right - MARGIN.left);
    plot.time = (px) => view[0] + (px - MARGIN.left) / (right - MARGIN.left) * (view[1] - view[0]);
    label(svg, 0, 13, plot.title, { class: 'name' });
    const top = 20 + shift;
    const bottom = plot.height + shift;
    const [marks, digits] = ticksOf(view[0], view[1], Math.max(3, Math.floor(width / 110)));
    for (const s of marks) {
      make('line', { x1: x(s), x2: x(s), y1: top, y2: bottom, class: 'grid' }, svg);
      label(svg, x(s), bottom + 13, `${s.toFixed(digits)} s`, { 'text-anchor': x(s) > right - 16 ? 'end' : 'middle' });
    }
    if (plot.spans) drawSpans(plot, svg, x, top, bottom); else drawCurves(plot, svg, x, top, bottom, right);
    if (cursor !== null && cursor >= view[0] && cursor <= view[1]) {
      make('line', { x1: x(cursor), x2: x(cursor), y1: top, y2: bottom, class: 'cursor' }, svg);
    }
    if (plot.picked) {
      const [a, b] = plot.picked.map(x).sort((p, q) => p - q);
      make('rect', { x: a, y: top, width: Math.max(1, b - a), height: bottom - top, class: 'pick' }, svg);
    }
  };

  const entriesOf = (plot) => {
    if (plot.spans) return coloursOf(plot).map(([code, color]) => [plot.names[code], color]);
    const curves = plot.curves();
    return curves.length > 1 ? curves.map((c) => [c.name, c.color]) : [];
  };
  const coloursOf = (plot) => [...new Set(plot.spans.map((span) => span[2]))].map(
    (code, index) => [code, plot.color(plot.names[code], index)]);

  // beside the title where there is room, else in rows below it
  const layOut = (entries, title, width) => {
    const lengthOf = (name) => 7 * name.length + 28;
    const whole = entries.reduce((n, [name]) => n + lengthOf(name), 0);
    const isApart = 7 * title.length + whole + 20 > width;
    let y = isApart ? 1 : 0;
    let x = isApart ? 0 : width - MARGIN.right - whole + 20;
    return entries.map(([name, color]) => {
      if (isApart && x > 0 && x + lengthOf(name) - 15 > width) { x = 0; y += 1; }
      const entry = { name, color, x, y };
      x += lengthOf(name);
      return entry;
    });
  };
  const legend = (svg, rows) => {
    for (const { name, color, x, y } of rows) {
      make('rect', { x, y: 4 + 16 * y, width: 9, height: 9, rx: 2, fill: css(color) }, svg);
      label(svg, x + 13, 13 + 16 * y, name, {});
    }
  };

  const drawSpans = (plot, svg, x, top, bottom) => {
    const color = new Map(coloursOf(plot));
    const used = [...color.keys()];
    const room = plot.marks ? 10 : 0;
    // rare and bad ones last, so that a narrow one is not covered
    const total = new Map(used.map((code) => [code, 0]));
    for (const [a, b, code] of plot.spans) total.set(code, total.get(code) + b - a);
    used.sort((p, q) => total.get(q) - total.get(p));
    for (const code of used) {
      let path = '';
      for (const [a, b, c] of plot.spans) {
        if (c !== code || b < view[0] || a > view[1]) continue;
        const left = Math.max(MARGIN.left, x(a));
        const end = Math.min(x(view[1]), Math.max(x(b), x(a) + 1.2));
        path += `M${left.toFixed(1)} ${top + room}H${end.toFixed(1)}V${bottom}H${left.toFixed(1)}Z`;
      }
      make('path', { d: path, fill: css(color.get(code)), 'data-name': plot.names[code] }, svg);
    }
    if (plot.marks) {
      for (const [a, b, number] of data.stalls) {
        const at = x((a + b) / 2);
        if (at < MARGIN.left || at > x(view[1])) continue;
        label(svg, at, top + 7, data.stalls.length > 40 ? 'v' : String(number), { 'text-anchor': 'middle' });
      }
    }
  };

  const drawCurves = (plot, svg, x, top, bottom, right) => {
    const curves = plot.curves();
    let low = plot.zero ? 0 : Infinity;
    let high = plot.zero ? 1e-3 : -Infinity;
    const ranges = curves.map((c) => {
      const from = Math.max(0, firstAt(c.t, view[0]) - 1);
      const to = Math.min(c.t.length, firstAt(c.t, view[1]) + 1);
      for (let i = from; i < to; i += 1) {
        const v = c.values[i];
        if (v !== null && v < low) low = v;
        if (v !== null && v > high) high = v;
      }
      return [from, to];
    });
    if (!(high > low)) { low = Number.isFinite(low) ? low - 0.5 : 0; high = low + 1; }
    const y = (v) => bottom - (v - low) / (high - low) * (bottom - top - 4);
    const [levels, digits] = ticksOf(low, high, 4);
    for (const v of levels) {
      make('line', { x1: MARGIN.left, x2: right, y1: y(v), y2: y(v), class: 'grid' }, svg);
      label(svg, MARGIN.left - 5, y(v) + 4, v.toFixed(digits), { 'text-anchor': 'end' });
    }
    curves.forEach((c, index) => {
      const [from, to] = ranges[index];
      const path = plot.dots && to - from < 1500 ? dots(c, from, to, x, y) : line(c, from, to, x, y, right);
      make('path', { d: path, fill: 'none', stroke: css(c.color),
        'stroke-width': plot.dots && to - from < 1500 ? 4 : 1.5, 'stroke-linecap': 'round',
        'stroke-linejoin': 'round', 'data-name': c.name }, svg);
    });
  };

  const dots = (c, from, to, x, y) => {
    let path = '';
    for (let i = from; i < to; i += 1) {
      const v = c.values[i];
      if (v !== null && c.t[i] >= view[0] && c.t[i] <= view[1]) {
        path += `M${x(c.t[i]).toFixed(1)} ${y(v).toFixed(1)}h0`;
      }
    }
    return path;
  };

  // of many points in one column the lowest and the highest are enough
  const line = (c, from, to, x, y, right) => {
    let path = '';
    let isOpen = false;
    let column = null;
    const flush = () => {
      if (!column) return;
      const ends = column.low === column.high ? [column.low] : [column.low, column.high];
      for (const v of ends) {
        path += `${isOpen ? 'L' : 'M'}${column.x.toFixed(1)} ${y(v).toFixed(1)}`;
        isOpen = true;
      }
      column = null;
    };
    for (let i = from; i < to; i += 1) {
      const v = c.values[i];
      const at = Math.min(right, Math.max(MARGIN.left, x(c.t[i])));
      if (v === null) { flush(); isOpen = false; continue; }
      if (column && Math.floor(column.x) === Math.floor(at)) {
        column.low = Math.min(column.low, v);
        column.high = Math.max(column.high, v);
      } else {
        flush();
        column = { x: at, low: v, high: v };
      }
    }
    flush();
    return path;
  };

  const redraw = () => {
    plots.forEach(draw);
    document.getElementById('range').textContent = `${view[0].toFixed(2)} to ${view[1].toFixed(2)} s`;
  };
  const show = (from, to) => {
    const length = Math.min(whole[1] - whole[0], Math.max(LEAST_S, to - from));
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(whole[0], middle - length / 2), whole[1] - length);
    view = [start, start + length];
    redraw();
  };
  const zoom = (factor, at) => {
    const middle = at === undefined ? (view[0] + view[1]) / 2 : at;
    show(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor);
  };
  const move = (share) => {
    const by = share * (view[1] - view[0]);
    show(view[0] + by, view[1] + by);
  };

  const nameAt = (spans, names, at) => {
    const span = spans.find(([a, b]) => at >= a && at < b);
    return span ? names[span[2]] : 'no tick recorded';
  };
  const tell = (at) => {
    cursor = at;
    const i = Math.max(0, firstAt(data.t, at + 1e-9) - 1);
    const number = (v, unit, digits) => (v === null || v === undefined ? 'none' : `${v.toFixed(digits)} ${unit}`);
    const unit = data.joints[joint] === 'gripper' ? 'm' : 'rad';
    readout.textContent = `${at.toFixed(3)} s: ${nameAt(data.verdicts, data.verdict_names, at)}, cause `
      + `${nameAt(data.causes, data.cause_names, at)}; frame age ${number(data.age_ms[i], 'ms', 0)}; `
      + `${data.joints[joint]} command ${number(data.command[joint][i], unit, 3)}, measured `
      + `${number(data.measured[joint][i], unit, 3)}`;
    redraw();
  };

  const attach = (plot) => {
    plot.svg = make('svg', { role: 'img', 'aria-label': plot.title }, host);
    const fingers = new Map();
    let spread = null;
    const timeOf = (event) => {
      const box = plot.svg.getBoundingClientRect();
      const at = plot.time((event.clientX - box.left) * plot.svg.viewBox.baseVal.width / box.width);
      return Math.min(view[1], Math.max(view[0], at));
    };
    plot.svg.addEventListener('pointerdown', (event) => {
      fingers.set(event.pointerId, timeOf(event));
      try { plot.svg.setPointerCapture(event.pointerId); } catch { /* a pointer that has gone */ }
      spread = fingers.size === 2 ? null : spread;
      plot.isMoving = event.shiftKey || event.pointerType === 'touch';
    });
    plot.svg.addEventListener('pointermove', (event) => {
      if (!fingers.has(event.pointerId)) {
        if (event.pointerType === 'mouse') tell(timeOf(event));
        return;
      }
      const box = plot.svg.getBoundingClientRect();
      if (fingers.size === 2) {
        fingers.set(event.pointerId, timeOf(event));
        const [a, b] = [...fingers.values()];
        const now = Math.abs(a - b) / (view[1] - view[0]);
        if (spread && now > 0.01) zoom(spread / now, (a + b) / 2);
        spread = now;
      } else if (plot.isMoving) {
        const by = -event.movementX / box.width * (view[1] - view[0]);
        show(view[0] + by, view[1] + by);
      } else {
        plot.picked = [fingers.get(event.pointerId), timeOf(event)];
        draw(plot);
      }
    });
    const release = (event) => {
      const start = fingers.get(event.pointerId);
      fingers.delete(event.pointerId);
      spread = null;
      const picked = plot.picked;
      plot.picked = null;
      if (picked && Math.abs(picked[1] - picked[0]) > 0.01 * (view[1] - view[0])) {
        show(Math.min(...picked), Math.max(...picked));
      } else if (start !== undefined && fingers.size === 0) {
        tell(timeOf(event));
      }
    };
    plot.svg.addEventListener('pointerup', release);
    plot.svg.addEventListener('pointercancel', release);
    plot.svg.addEventListener('dblclick', () => show(...whole));
    plot.svg.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, timeOf(event));
    }, { passive: false });
  };

  const chooser = document.getElementById('joint');
  data.joints.forEach((name, index) => chooser.add(new Option(name, String(index))));
  chooser.addEventListener('change', () => { joint = Number(chooser.value); redraw(); });
  const on = (id, action) => document.getElementById(id).addEventListener('click', action);
  on('in', () => zoom(0.5));
  on('out', () => zoom(2));
  on('left', () => move(-0.5));
  on('right', () => move(0.5));
  on('all', () => show(...whole));
  host.addEventListener('keydown', (event) => {
    const actions = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), '+': () => zoom(0.5),
      '=': () => zoom(0.5), '-': () => zoom(2), 0: () => show(...whole) };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  });
  for (const button of document.querySelectorAll('.go')) {
    button.addEventListener('click', () => {
      const [from, to] = [Number(button.dataset.from), Number(button.dataset.to)];
      const room = Math.max(0.3, to - from);
      show(from - room, to + room);
      document.getElementById('timeline').scrollIntoView({ block: 'start' });
    });
  }
  plots.forEach(attach);
  document.querySelector('.tools').hidden = false;
  redraw();
  new ResizeObserver(redraw).observe(host);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  document.documentElement.dataset.ready = 'yes';
})();
