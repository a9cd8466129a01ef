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

// A list of terms and values that can be set again: [[term, value], ...]; a
// value is text, or {text, href, tone}. What is empty is left out.
export class Facts {
  constructor(testid) {
    this.element = make('dl', {class: 'facts', testid});
    this.shown = '';
  }

  set(facts) {
    const wanted = facts.filter(([, value]) => (value?.text ?? value ?? '') !== '');
    const text = JSON.stringify(wanted);
    if (text === this.shown) return;
    this.shown = text;
    this.element.replaceChildren(...wanted.flatMap(([term, value]) => {
      const content = value?.text ?? value;
      const shown = value?.href ? make('a', {href: value.href}, String(content)) : String(content);
      return [make('dt', {}, term), make('dd', {class: value?.tone}, shown)];
    }));
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
