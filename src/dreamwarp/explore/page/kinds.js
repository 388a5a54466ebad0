"use strict";

// One class for each kind of samples: how they are decoded and drawn. Their counterparts that encode
// them are in arrays.py and meshes.py. `frame.below` and `frame.over` are the canvases of a picture.

const MARKS = ["#d1495b", "#e09f3e", "#2a9d8f", "#8053a0"];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

function bytes(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
const floats = (text) => new Float32Array(bytes(text).buffer);

// Gives a canvas the pixels of the screen; returns its pen, width and height.
function fit(canvas) {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  return [pen, box.width, box.height];
}

class Kind {
  constructor(model) { this.model = model; }

  canvasClass = "lines";  // of canvases with a sample
  hasGrid = false;  // whether there is a grid to show over samples
  hasLandmarks = false;
  hasSlices = false;
  fieldCaption = "Velocity";
  pairFieldCaption = "Velocity and grid";
  rest = "of the squared difference remains";

  // Samples of an answer.
  unpackAll(answer) { return answer.map((one) => this.unpack(one)); }

  // Draws what lies over the warped sample and the original.
  drawOver(original, warped, answer, landmarks, withGrid) {}

  // Called once with all frames, so that they can be turned.
  connect(frames, redraw) {}

  // File name and content of a download.
  async download(sample, canvas) {
    return ["png", await new Promise((done) => canvas.toBlob(done))];
  }
}

// -- arrays

class Arrays extends Kind {
  decode(text) { return bytes(text); }

  unpack({ shape, data, aspect }) { return { shape, aspect, values: this.decode(data) }; }

  unpackAll({ shape: [n, ...shape], data, aspect }) {
    const values = this.decode(data), size = shape.reduce((a, b) => a * b, 1);
    return Array.from({ length: n }, (_, k) => ({ shape, aspect, values: values.subarray(k * size, (k + 1) * size) }));
  }
}

class Signals extends Arrays {
  fieldCaption = "Where each time goes";
  pairFieldCaption = "Where each time goes";

  decode(text) { return floats(text); }

  draw(canvas, sample, behind) {
    const [pen, width, height] = this.prepare(canvas), lane = height / this.lanes.length;
    const trace = ({ shape: [, length], values }, color, thickness) => {
      pen.strokeStyle = color;
      pen.lineWidth = thickness;
      this.lanes.forEach(([low, high], c) => {
        pen.beginPath();
        for (let i = 0; i < length; i++) {
          const share = (values[c * length + i] - low) / (high - low);
          pen.lineTo(width * (i + 0.5) / length, lane * (c + 0.93 - 0.86 * share));
        }
        pen.stroke();
      });
    };
    if (behind) trace(behind, style("--line"), 5);
    trace(sample, style("--ink"), 1.5);
  }

  // The range of each channel that is shown; they are drawn one below the other.
  get lanes() { return this.model.lanes.length ? this.model.lanes : [[this.model.low, this.model.high]]; }

  prepare(canvas) {
    canvas.style.aspectRatio = 1.7 / Math.max(1, 0.45 * this.lanes.length);
    return fit(canvas);
  }

  drawDifference(canvas, first, second) {
    const [pen, width, height] = this.prepare(canvas), lane = height / this.lanes.length, length = first.shape[1];
    pen.fillStyle = MARKS[0];
    pen.globalAlpha = 0.7;
    this.lanes.forEach(([low, high], c) => {
      pen.beginPath();
      pen.moveTo(0, lane * (c + 0.5));
      for (let i = 0; i < length; i++) {
        const k = c * length + i, share = (first.values[k] - second.values[k]) / (high - low);
        pen.lineTo(width * (i + 0.5) / length, lane * (c + 0.5 - 0.5 * share));
      }
      pen.lineTo(width, lane * (c + 0.5));
      pen.fill();
    });
  }

  drawField({ below }, answer) {
    const [pen, width, height] = this.prepare(below), moved = floats(answer.grid);
    pen.strokeStyle = style("--line");
    pen.beginPath(); pen.moveTo(0, height); pen.lineTo(width, 0); pen.stroke();
    pen.strokeStyle = style("--accent");
    pen.lineWidth = 2;
    pen.beginPath();
    moved.forEach((value, i) => pen.lineTo(width * i / (moved.length - 1), height * (1 - value)));
    pen.stroke();
  }

  async download({ shape: [channels, length], values }) {
    const rows = [];
    for (let i = 0; i < length; i++) rows.push(Array.from({ length: channels }, (_, c) => values[c * length + i]).join(","));
    return ["csv", new Blob([rows.join("\n") + "\n"], { type: "text/csv" })];
  }
}

class Images extends Arrays {
  canvasClass = "pixels";
  hasGrid = true;
  hasLandmarks = true;

  draw(canvas, { shape: [channels, rows, columns], values, aspect }) {
    const n = rows * columns;
    canvas.style.aspectRatio = aspect || "";  // without one, pixels are square
    if (canvas.width !== columns || canvas.height !== rows) { canvas.width = columns; canvas.height = rows; }
    const image = new ImageData(columns, rows), out = image.data;
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < 3; k++) {
        if (channels === 3 || channels === 4) out[4 * i + k] = values[k * n + i];
        else if (channels === 1) out[4 * i + k] = values[i];
        else { let sum = 0; for (let c = 0; c < channels; c++) sum += values[c * n + i]; out[4 * i + k] = sum / channels; }
      }
      out[4 * i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  drawDifference(canvas, first, second) {
    const [channels, rows, columns] = first.shape, n = rows * columns;
    canvas.className = "difference";
    canvas.style.aspectRatio = first.aspect || "";
    canvas.style.imageRendering = "pixelated";
    canvas.width = columns; canvas.height = rows;
    const image = new ImageData(columns, rows), ground = isDark() ? [26, 29, 37] : [255, 255, 255];
    for (let i = 0; i < n; i++) {
      let sum = 0;
      for (let c = 0; c < channels; c++) sum += first.values[c * n + i] - second.values[c * n + i];
      const share = Math.min(1, Math.abs(sum) / (255 * channels)), hue = sum < 0 ? [209, 73, 91] : [60, 140, 200];
      for (let k = 0; k < 3; k++) image.data[4 * i + k] = ground[k] + share * (hue[k] - ground[k]);
      image.data[4 * i + 3] = 255;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
  }

  // Draws the velocity in a frame with the proportions of a sample, optionally with the grid.
  drawField({ below, over }, answer, sample, warped, withGrid) {
    below.className = "blank";
    below.style.aspectRatio = sample.aspect || "";
    [, below.height, below.width] = sample.shape;
    const [pen, width, height] = fit(over);
    if (withGrid) drawGrid(pen, width, height, floats(answer.grid), answer.points_per_line);
    drawArrows(pen, width, height, floats(answer.arrows));
  }

  drawOver(original, warped, answer, landmarks, withGrid) {
    drawPoints(...fit(original.over), landmarks);
    const [pen, width, height] = fit(warped.over);
    if (withGrid) drawGrid(pen, width, height, floats(answer.grid), answer.points_per_line);
    drawPoints(pen, width, height, answer.landmarks || []);
  }
}

class Volumes extends Images {
  hasLandmarks = false;
  hasSlices = true;
  fieldCaption = "Velocity in the slice";
  rest = "of the squared difference of the volumes remains";
}

function drawGrid(pen, width, height, grid, pointsPerLine) {
  pen.strokeStyle = style("--accent");
  pen.globalAlpha = 0.75;
  pen.lineWidth = 1;
  for (let start = 0; start < grid.length; start += 2 * pointsPerLine) {
    pen.beginPath();
    for (let i = start; i < start + 2 * pointsPerLine; i += 2) pen.lineTo(grid[i + 1] * width, grid[i] * height);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawArrows(pen, width, height, arrows) {
  let fastest = 1e-9;
  for (let i = 0; i < arrows.length; i += 4) fastest = Math.max(fastest, Math.hypot(arrows[i + 2], arrows[i + 3]));
  // Proportional to the speed, and at most one and a half gaps long.
  const gap = 1 / Math.sqrt(arrows.length / 4), scale = Math.min(1.5 * gap / fastest, 1);
  pen.strokeStyle = pen.fillStyle = style("--accent");
  for (let i = 0; i < arrows.length; i += 4) {
    const dy = arrows[i + 2] * scale * height, dx = arrows[i + 3] * scale * width, length = Math.hypot(dx, dy);
    const x = arrows[i + 1] * width - dx / 2, y = arrows[i] * height - dy / 2;
    pen.globalAlpha = 0.35 + 0.65 * Math.hypot(arrows[i + 2], arrows[i + 3]) / fastest;
    if (length < 1.2) { pen.fillRect(x - 0.6, y - 0.6, 1.2, 1.2); continue; }
    const head = Math.min(5, 0.45 * length), ux = dx / length, uy = dy / length;
    pen.lineWidth = 1.4;
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + dx - ux * head, y + dy - uy * head); pen.stroke();
    pen.beginPath(); pen.moveTo(x + dx, y + dy);
    pen.lineTo(x + dx - ux * head - uy * head * 0.55, y + dy - uy * head + ux * head * 0.55);
    pen.lineTo(x + dx - ux * head + uy * head * 0.55, y + dy - uy * head - ux * head * 0.55);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function drawPoints(pen, width, height, points) {
  points.forEach(([row, column], k) => {
    pen.beginPath();
    pen.arc(column * width, row * height, 5.5, 0, 7);
    pen.fillStyle = MARKS[k % MARKS.length];
    pen.strokeStyle = "#fff";
    pen.lineWidth = 2;
    pen.fill(); pen.stroke();
  });
}

// -- meshes

const LIGHT = [0.35, 0.55, 0.76];  // to the right, up, to the viewer
const PLAIN = [122, 164, 200], FIRST = [209, 73, 91], SECOND = [60, 140, 200];
// Colours of points that stay and of those that move most.
const STILL = [205, 214, 224], FAR = [209, 73, 91];

class Meshes extends Kind {
  canvasClass = "surface";
  fieldCaption = "How far each point moves";
  pairFieldCaption = "How far each point moves";
  rest = "of the squared distance remains";
  // The axes of the screen in the data: right, up, to the viewer. From half right and above, as in
  // reports.
  turned = orthonormal([0.87, 0.5, 0], [-0.2, 0.35, 0.92]);

  unpack({ points, faces }) {
    return { points: floats(points), faces: new Uint32Array(bytes(faces).buffer) };
  }

  draw(canvas, sample) { this.paint(canvas, [[sample, () => PLAIN]]); }

  // Both surfaces: where one colour shows, that surface lies outside the other.
  drawDifference(canvas, first, second) {
    this.paint(canvas, [[first, () => FIRST], [second, () => SECOND]]);
  }

  drawField({ below }, answer, sample, warped) {
    const before = sample.points, after = warped.points, moved = new Float32Array(before.length / 3);
    for (let i = 0; i < moved.length; i++) moved[i] = Math.hypot(after[3 * i] - before[3 * i], after[3 * i + 1] - before[3 * i + 1], after[3 * i + 2] - before[3 * i + 2]);
    const most = moved.reduce((a, b) => Math.max(a, b), 1e-9);
    this.paint(below, [[sample, (corners) => {
      let share = 0;
      for (const corner of corners) share += moved[corner] / most / corners.length;
      return STILL.map((value, k) => value + share * (FAR[k] - value));
    }]]);
  }

  // Paints surfaces, the triangles behind first; `colorOf` takes the corners of a triangle.
  paint(canvas, surfaces) {
    canvas.style.aspectRatio = "1";
    const [pen, width, height] = fit(canvas), scale = 0.43 * Math.min(width, height) / this.model.radius;
    const [right, up, near] = this.turned, along = (axis, points, i) => axis[0] * (points[i] - 0.5) + axis[1] * (points[i + 1] - 0.5) + axis[2] * (points[i + 2] - 0.5);
    const pieces = [];
    for (const [{ points, faces }, colorOf] of surfaces) {
      const n = points.length / 3, x = new Float32Array(n), y = new Float32Array(n), z = new Float32Array(n);
      for (let i = 0; i < n; i++) {
        x[i] = along(right, points, 3 * i); y[i] = along(up, points, 3 * i); z[i] = along(near, points, 3 * i);
      }
      const px = x.map((value) => width / 2 + scale * value), py = y.map((value) => height / 2 - scale * value);
      if (!faces.length) for (let i = 0; i < n; i++) pieces.push([z[i], colorOf([i]), px, py, [i], 0.7]);
      for (let f = 0; f < faces.length; f += 3) {
        const a = faces[f], b = faces[f + 1], c = faces[f + 2];
        const [ux, uy, uz, vx, vy, vz] = [x[b] - x[a], y[b] - y[a], z[b] - z[a], x[c] - x[a], y[c] - y[a], z[c] - z[a]];
        const normal = [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx], length = Math.hypot(...normal) || 1;
        // Either side of a triangle may be its outside: light falls on both.
        const side = normal[2] < 0 ? -1 : 1;
        const lit = side * (normal[0] * LIGHT[0] + normal[1] * LIGHT[1] + normal[2] * LIGHT[2]) / length;
        pieces.push([z[a] + z[b] + z[c], colorOf([a, b, c]), px, py, [a, b, c], 0.42 + 0.62 * Math.max(0, lit)]);
      }
    }
    pieces.sort((first, second) => first[0] - second[0]);
    pen.lineJoin = "round";
    pen.lineWidth = 0.7;
    for (const [, color, px, py, corners, shade] of pieces) {
      pen.fillStyle = pen.strokeStyle = `rgb(${color.map((value) => Math.min(255, Math.round(value * shade))).join(" ")})`;
      if (corners.length === 1) { pen.fillRect(px[corners[0]] - 1, py[corners[0]] - 1, 2, 2); continue; }
      pen.beginPath();
      for (const corner of corners) pen.lineTo(px[corner], py[corner]);
      pen.closePath();
      pen.fill(); pen.stroke();  // the stroke hides gaps between triangles
    }
  }

  // Dragging, or arrow keys, turn all surfaces.
  connect(frames, redraw) {
    const turn = (dx, dy) => {
      const [right, up, near] = this.turned;
      const sideways = mix(right, Math.cos(dx), near, -Math.sin(dx)), ahead = mix(near, Math.cos(dx), right, Math.sin(dx));
      this.turned = orthonormal(sideways, mix(up, Math.cos(dy), ahead, Math.sin(dy)));
      redraw();
    };
    for (const frame of frames) {
      let from = null;
      frame.tabIndex = 0;
      frame.classList.add("turns");
      frame.title = "Drag to turn";
      frame.addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; frame.setPointerCapture(event.pointerId); });
      frame.addEventListener("pointermove", (event) => {
        if (!from) return;
        turn(0.01 * (event.clientX - from[0]), 0.01 * (event.clientY - from[1]));
        from = [event.clientX, event.clientY];
      });
      for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => { from = null; });
      frame.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
        if (step) { event.preventDefault(); turn(...step); }
      });
    }
  }
}

const mix = (a, s, b, t) => a.map((value, k) => s * value + t * b[k]);

// Right, up, and to the viewer, from two directions.
function orthonormal(right, up) {
  const unit = (v) => v.map((value) => value / Math.hypot(...v));
  const first = unit(right), dot = first.reduce((sum, value, k) => sum + value * up[k], 0);
  const second = unit(mix(up, 1, first, -dot));
  const [a, b, c] = first, [d, e, f] = second;
  return [first, second, [b * f - c * e, c * d - a * f, a * e - b * d]];
}

const KINDS = { signal: Signals, image: Images, volume: Volumes, mesh: Meshes };
