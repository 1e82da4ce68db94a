package org.flinkskills.bridge.frames;

import java.io.IOException;
import java.io.OutputStream;

/**
 * Writer that combines small frames and splits large ones, so that no write copies a whole frame.
 */
public final class FrameBatch {
  private final OutputStream out;
  private final byte[] buffer = new byte[Frames.CHUNK_BYTES];
  private int size;

  public FrameBatch(OutputStream out) {
    this.out = out;
  }

  public void add(byte[] frame) throws IOException {
    if (frame.length > buffer.length - size) {
      writeBuffer();
    }
    if (frame.length <= buffer.length) {
      System.arraycopy(frame, 0, buffer, size, frame.length);
      size += frame.length;
      return;
    }
    // The JVM allocates a native buffer of the size of each write.
    for (int from = 0; from < frame.length; from += Frames.CHUNK_BYTES) {
      out.write(frame, from, Math.min(Frames.CHUNK_BYTES, frame.length - from));
    }
  }

  public void flush() throws IOException {
    writeBuffer();
    out.flush();
  }

  private void writeBuffer() throws IOException {
    out.write(buffer, 0, size);
    size = 0;
  }
}
