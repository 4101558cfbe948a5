/* Search from files: a page that was opened as a file may not start a Worker, so the search runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const heard = [];
      let isReady = false;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.postMessage = (data) => {
        if (isReady) inside.dispatchEvent(new MessageEvent("message", { data }));
        else heard.push(data);
      };
      const script = inside.document.createElement("script");
      script.onload = () => {
        isReady = true;
        heard.forEach((data) => this.postMessage(data));
      };
      script.src = url;
      inside.document.body.append(script);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
