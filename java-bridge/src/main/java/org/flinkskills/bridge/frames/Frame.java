package org.flinkskills.bridge.frames;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A received frame with a cursor over its body. */
public final class Frame {
  /** A value for an output; the empty tag is the main output. */
  public record Output(String tag, byte[] value) {}

  /** The offset of the flags of STEP: type, operator and turn come first. */
  private static final int STEP_FLAGS = 1 + 4 + 8;

  private final byte[] content;
  private int position = 1;

  /** {@code content} is the type byte and the body. */
  public Frame(byte[] content) {
    this.content = content;
  }

  public int type() {
    return content[0] & 0xFF;
  }

  /** Return the type byte and the body. */
  public byte[] content() {
    return content;
  }

  /** Return true if a turn has ended or waits, or a step that a restart does not repeat. */
  public boolean isProgress() {
    return type() == Frames.END
        || type() == Frames.PARK
        || type() == Frames.WAIT
        || type() == Frames.STEP
            && content.length > STEP_FLAGS
            && (content[STEP_FLAGS] & Frames.STEP_CLEARS_JOURNAL) == 0;
  }

  public int u8() throws FrameException {
    require(1);
    return content[position++] & 0xFF;
  }

  public int u32() throws FrameException {
    require(4);
    int value = Frames.getInt(content, position);
    position += 4;
    return value;
  }

  public long u64() throws FrameException {
    long high = u32() & 0xFFFFFFFFL;
    return high << 32 | u32() & 0xFFFFFFFFL;
  }

  public byte[] bytes() throws FrameException {
    int length = u32();
    require(length);
    byte[] value = Arrays.copyOfRange(content, position, position + length);
    position += length;
    return value;
  }

  public String str() throws FrameException {
    int length = u32();
    require(length);
    String value = new String(content, position, length, StandardCharsets.UTF_8);
    position += length;
    return value;
  }

  public List<byte[]> list() throws FrameException {
    int count = u32();
    // Each item takes four bytes at least; a wrong count must not reserve gigabytes.
    require(count < 0 ? -1 : Math.min(Integer.MAX_VALUE, count * 4L));
    List<byte[]> values = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      values.add(bytes());
    }
    return values;
  }

  /** Skip {@code bytes} or {@code str}. */
  public void skip() throws FrameException {
    int length = u32();
    require(length);
    position += length;
  }

  /** Return the number of unread bytes. */
  public int remaining() {
    return content.length - position;
  }

  /** Read the values to emit. */
  public List<Output> outputs() throws FrameException {
    int count = u32();
    // Each takes eight bytes at least; a wrong count must not reserve gigabytes.
    require(count < 0 ? -1 : Math.min(Integer.MAX_VALUE, count * 8L));
    if (count == 0) {
      return List.of();
    }
    List<Output> outputs = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      outputs.add(new Output(str(), bytes()));
    }
    return outputs;
  }

  private void require(long bytes) throws FrameException {
    if (bytes < 0 || bytes > (long) content.length - position) {
      throw new FrameException(
          String.format(
              "A frame of type 0x%02x from the agent worker is truncated: expected %d bytes at"
                  + " offset %d of %d. Worker and bridge jar must be of the same release.",
              type(), bytes, position, content.length));
    }
  }
}
