// Parser of an HTTP/1.1 answer whose body is text, in chunks or of a known length.

import { StringDecoder } from "node:string_decoder";

const MAX_LINE = 16 << 10;

export class Answer {
  status = 0;
  /** Whether all of it was read. */
  isOver = false;
  /** Whether the connection may have another request after it. */
  isKept = true;
  #expect = this.#first;
  #isChunked = false;
  #length = NaN;
  /** Bytes that are left of the body or of a chunk. */
  #left = 0;
  #rest = Buffer.alloc(0);
  #decoder = new StringDecoder("utf8");

  /** Reads bytes, wherever they are cut, and returns the text of the body in them. */
  read(bytes) {
    let data = this.#rest.length ? Buffer.concat([this.#rest, bytes]) : bytes;
    let text = "";
    if (this.isOver) throw new Error("it has sent more than its answer");
    while (data.length && !this.isOver) {
      if (this.#left) {
        const part = data.subarray(0, this.#left);
        text += this.#decoder.write(part);
        data = data.subarray(part.length);
        this.#left -= part.length;
        this.isOver = this.#left === 0 && !this.#isChunked;
        continue;
      }
      const end = data.indexOf("\n");
      if (end < 0 && data.length > MAX_LINE) throw new Error("a line of the answer is too long");
      if (end < 0) break;
      this.#expect(data.toString("latin1", 0, end).replace(/\r$/, ""));
      data = data.subarray(end + 1);
    }
    this.#rest = data;
    // What follows an answer would be taken for the next one.
    if (this.isOver && data.length) this.isKept = false;
    return text;
  }

  #first(line) {
    const found = /^HTTP\/1\.\d (\d{3})( |$)/.exec(line);
    if (!found) throw new Error("the answer is not HTTP");
    this.status = Number(found[1]);
    this.#expect = this.#field;
  }

  #field(line) {
    const [, name, value] = /^([^\s:]+):\s*(.*?)\s*$/.exec(line) ?? [];
    if (line === "") this.#body();
    else if (!name) throw new Error("the answer is not HTTP");
    else if (/^connection$/i.test(name)) this.isKept = !/close/i.test(value);
    else if (/^transfer-encoding$/i.test(name)) this.#isChunked = /^chunked$/i.test(value);
    else if (/^content-length$/i.test(name)) this.#length = /^\d{1,9}$/.test(value) ? Number(value) : NaN;
  }

  #body() {
    if (!this.#isChunked && isNaN(this.#length)) throw new Error("the answer has no length");
    this.#expect = this.#size;
    this.#left = this.#isChunked ? 0 : this.#length;
    this.isOver = !this.#isChunked && this.#left === 0;
  }

  #size(line) {
    if (!/^[\da-f]{1,8}(;.*)?$/i.test(line)) throw new Error("the answer is not in chunks");
    this.#left = parseInt(line, 16);
    this.#expect = this.#left ? this.#chunkEnd : this.#trailer;
  }

  #chunkEnd(line) {
    if (line !== "") throw new Error("the answer is not in chunks");
    this.#expect = this.#size;
  }

  #trailer(line) {
    this.isOver = line === "";
  }
}
