// Lets the search work where the site is opened from a disk: browsers start no worker from file://, so the worker's script
// runs in a hidden frame of the page. Like a worker's, messages arrive later and as copies.
if (location.protocol === "file:") {
  const deliver = (target, data) => {
    const message = new MessageEvent("message", { data: structuredClone(data) });
    setTimeout(() => {
      target.dispatchEvent(message);
    });
  };
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.addEventListener("message", (message) => this.onmessage?.(message));
      const start = () => {
        document.body.append(this.frame);
        const inside = this.frame.contentWindow;
        inside.postMessage = (data) => deliver(this, data);
        const script = inside.document.createElement("script");
        script.src = new URL(address, location.href).href;
        script.onload = () => {
          this.waiting.forEach((data) => deliver(inside, data));
          this.waiting = null;
        };
        inside.document.body.append(script);
      };
      if (document.body) start();
      else document.addEventListener("DOMContentLoaded", start);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else deliver(this.frame.contentWindow, data);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
