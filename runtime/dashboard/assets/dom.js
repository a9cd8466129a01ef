// Elements. Whatever comes from the cluster gets into the page as text only.

// make('p', {class: 'soft', testid: 'x', on: {click: f}}, 'text', element, ...)
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === 'on') {
      for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    } else if (key === 'testid') {
      element.dataset.testid = value;
    } else {
      element.setAttribute(key, value === true ? '' : String(value));
    }
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

// Text is only touched when it changes: a selection in it stays.
export function setText(element, text) {
  const wanted = String(text ?? '');
  if (element.textContent !== wanted) element.textContent = wanted;
}

export const heading = (text, testid) => make('h1', {tabindex: '-1', testid}, text);

// A list of terms and values that can be set again, in place: [[term, value],
// ...]; a value is text, or {text, href, tone}. What is empty is left out.
export class Facts {
  constructor(testid) {
    this.element = make('dl', {class: 'facts', testid});
    this.shown = new Map();  // By term: its two elements.
  }

  set(facts) {
    const wanted = facts.filter(([, value]) => (value?.text ?? value ?? '') !== '');
    const terms = new Set(wanted.map(([term]) => term));
    // First: what is moved loses the focus.
    for (const [term, parts] of this.shown) {
      if (terms.has(term)) continue;
      for (const part of parts) part.remove();
      this.shown.delete(term);
    }
    let place = this.element.firstChild;
    for (const [term, value] of wanted) {
      let parts = this.shown.get(term);
      if (!parts) {
        parts = [make('dt', {}, term), make('dd')];
        this.shown.set(term, parts);
      }
      for (const part of parts) {
        if (part === place) {
          place = place.nextSibling;
        } else {
          this.element.insertBefore(part, place);
        }
      }
      this.fill(parts[1], value);
    }
  }

  fill(cell, value) {
    let inner = cell.firstElementChild;
    if (Boolean(inner) !== Boolean(value?.href)) {
      inner = value?.href ? make('a') : null;
      cell.replaceChildren(...(inner ? [inner] : []));
    }
    setText(inner ?? cell, value?.text ?? value);
    if (inner && inner.getAttribute('href') !== value.href) inner.setAttribute('href', value.href);
    const tone = value?.tone ?? '';
    if (cell.className !== tone) cell.className = tone;
  }
}

// Asks in a dialog; resolves to whether it was confirmed.
export function confirmed(question, yes) {
  const dialog = document.getElementById('confirm-dialog');
  const yesButton = document.getElementById('confirm-yes');
  const noButton = document.getElementById('confirm-no');
  document.getElementById('confirm-text').textContent = question;
  yesButton.textContent = yes;
  return new Promise((resolve) => {
    dialog.returnValue = 'no';
    yesButton.onclick = () => dialog.close('yes');
    noButton.onclick = () => dialog.close('no');
    dialog.onclose = () => resolve(dialog.returnValue === 'yes');
    dialog.showModal();
    noButton.focus();
  });
}
