package org.flinkskills.bridge.frames;

import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import java.util.List;

/** Parser of the frames in a byte stream. Each read consumes all available bytes. */
public final class FrameParser {
  private byte[] buffer = new byte[Frames.CHUNK_BYTES];
  private int start;
  private int end;

  /** An incomplete frame that is longer than the buffer, or null. */
  private byte[] large;

  /** The number of received bytes of the large frame. */
  private int largeEnd;

  /**
   * Read once from the stream, and add every complete frame to the list. The read blocks until
   * bytes arrive.
   *
   * @return false at the end of the stream
   */
  public boolean read(InputStream in, List<Frame> frames) throws IOException {
    if (large != null) {
      return readLarge(in, frames);
    }
    int count = in.read(buffer, end, buffer.length - end);
    if (count < 0) {
      return false;
    }
    end += count;
    boolean complete;
    do {
      complete = parseFrame(frames);
    } while (complete);
    System.arraycopy(buffer, start, buffer, 0, end - start);
    end -= start;
    start = 0;
    return true;
  }

  private boolean readLarge(InputStream in, List<Frame> frames) throws IOException {
    // The JVM allocates a native buffer of the size of each read.
    int count = in.read(large, largeEnd, Math.min(Frames.CHUNK_BYTES, large.length - largeEnd));
    if (count < 0) {
      return false;
    }
    largeEnd += count;
    if (largeEnd == large.length) {
      frames.add(new Frame(large));
      large = null;
    }
    return true;
  }

  /** Parse one frame. Return false if it is incomplete. */
  private boolean parseFrame(List<Frame> frames) throws FrameException {
    int available = end - start;
    if (available < Frames.LENGTH_BYTES) {
      return false;
    }
    int length = Frames.getInt(buffer, start);
    if (length < 1 || length > Frames.MAX_FRAME_BYTES) {
      throw new FrameException(
          String.format(
              "The agent worker sent a frame of %d bytes; 1 to %d are allowed. Its standard"
                  + " output may contain the output of other code.",
              length & 0xFFFFFFFFL, Frames.MAX_FRAME_BYTES));
    }
    int from = start + Frames.LENGTH_BYTES;
    if (available >= Frames.LENGTH_BYTES + length) {
      frames.add(new Frame(Arrays.copyOfRange(buffer, from, from + length)));
      start = from + length;
      return true;
    }
    if (Frames.LENGTH_BYTES + length > buffer.length) {
      large = new byte[length];
      largeEnd = end - from;
      System.arraycopy(buffer, from, large, 0, largeEnd);
      start = end;
    }
    return false;
  }
}
