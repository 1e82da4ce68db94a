package org.flinkskills.bridge.frames;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/** One frame under construction. */
public final class FrameWriter {
  private static final int INITIAL_BYTES = 128;

  private byte[] buffer;
  private int size = Frames.LENGTH_BYTES;

  public FrameWriter(int type) {
    buffer = new byte[INITIAL_BYTES];
    u8(type);
  }

  /** A writer for a body of that size, which builds a large frame without a copy. */
  public FrameWriter(int type, long bodyBytes) {
    buffer = new byte[0];
    size = 0;
    reserve(Frames.LENGTH_BYTES + 1 + bodyBytes);
    size = Frames.LENGTH_BYTES;
    u8(type);
  }

  public FrameWriter u8(int value) {
    reserve(1);
    buffer[size++] = (byte) value;
    return this;
  }

  public FrameWriter u32(int value) {
    reserve(4);
    Frames.putInt(buffer, size, value);
    size += 4;
    return this;
  }

  public FrameWriter u64(long value) {
    return u32((int) (value >>> 32)).u32((int) value);
  }

  public FrameWriter bytes(byte[] value) {
    return bytes(value, 0);
  }

  /** Write the bytes of {@code value} that follow an offset. */
  public FrameWriter bytes(byte[] value, int offset) {
    int length = value.length - offset;
    reserve(4L + length);
    Frames.putInt(buffer, size, length);
    System.arraycopy(value, offset, buffer, size + 4, length);
    size += 4 + length;
    return this;
  }

  /** Write a string, see {@link #utf8}. */
  public FrameWriter str(String value) {
    return bytes(utf8(value));
  }

  public FrameWriter list(List<byte[]> values) {
    u32(values.size());
    for (byte[] value : values) {
      bytes(value);
    }
    return this;
  }

  public byte[] frame() {
    Frames.putInt(buffer, 0, size - Frames.LENGTH_BYTES);
    return size == buffer.length ? buffer : Arrays.copyOf(buffer, size);
  }

  private void reserve(long more) {
    long needed = size + more;
    if (needed > Frames.MAX_FRAME_BYTES + (long) Frames.LENGTH_BYTES) {
      throw new IllegalStateException(
          String.format(
              "A frame for the agent worker needs %d bytes, more than the limit of %d. Keep"
                  + " events and sessions smaller, for example by passing a path or an object"
                  + " key.",
              needed, Frames.MAX_FRAME_BYTES));
    }
    if (needed > buffer.length) {
      long doubled =
          Math.min(buffer.length * 2L, Frames.MAX_FRAME_BYTES + (long) Frames.LENGTH_BYTES);
      buffer = Arrays.copyOf(buffer, (int) Math.max(doubled, needed));
    }
  }

  /**
   * Encode a string as UTF-8. A lone surrogate becomes three bytes, as with Python's
   * "surrogatepass".
   */
  public static byte[] utf8(String text) {
    return hasSurrogates(text) ? encodeCodePoints(text) : text.getBytes(StandardCharsets.UTF_8);
  }

  private static boolean hasSurrogates(String text) {
    for (int i = 0; i < text.length(); i++) {
      if (Character.isSurrogate(text.charAt(i))) {
        return true;
      }
    }
    return false;
  }

  /** Java itself encodes a lone surrogate as "?", so that two keys would become equal. */
  private static byte[] encodeCodePoints(String text) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(text.length() + 16);
    text.codePoints()
        .forEach(
            c -> {
              if (c >= Character.MIN_SURROGATE && c <= Character.MAX_SURROGATE) {
                bytes.write(0xE0 | c >> 12);
                bytes.write(0x80 | c >> 6 & 0x3F);
                bytes.write(0x80 | c & 0x3F);
              } else {
                bytes.writeBytes(Character.toString(c).getBytes(StandardCharsets.UTF_8));
              }
            });
    return bytes.toByteArray();
  }
}
