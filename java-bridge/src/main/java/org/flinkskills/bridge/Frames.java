package org.flinkskills.bridge;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Frames that the JVM and a worker process exchange over the worker's standard input and output.
 *
 * <p>A frame is {@code u32 length | u8 type | body}; the length counts the type and the body. Whole
 * numbers are big-endian. {@code bytes} is {@code u32 length + bytes}, {@code str} the same in
 * UTF-8, a list is {@code u32 count} and then its items. The JVM never parses events, sessions,
 * journal entries or outputs: they are {@code bytes}.
 */
final class Frames {

  /** The longest frame either side may send, in bytes. */
  static final int MAX_FRAME_BYTES = 256 * 1024 * 1024;

  static final int OPEN = 0x01;
  static final int TURN = 0x02;
  static final int SESSION = 0x03;
  static final int CANCEL = 0x04;
  static final int CLOSE = 0x05;
  static final int PING = 0x06;
  static final int ANSWER = 0x07;

  static final int OPENED = 0x81;
  static final int OPEN_FAILED = 0x82;

  /** Opening again later may succeed. */
  static final int OPEN_FAILED_RETRYABLE = 1;

  static final int STEP = 0x83;
  static final int END = 0x84;
  static final int NEED_SESSION = 0x85;
  static final int METRICS = 0x86;
  static final int EVENTS = 0x87;
  static final int OUTPUTS = 0x88;
  static final int PONG = 0x89;
  static final int WAIT = 0x8A;
  static final int PARK = 0x8B;

  /** Operations of WAIT. */
  static final int WAIT_OPEN = 0;

  static final int WAIT_CLOSE = 1;
  static final int WAIT_REJECT = 2;
  static final int WAIT_CANCEL = 3;

  /** Kinds of answers to waits. */
  static final int ANSWERED = 0;

  static final int TIMED_OUT = 1;
  static final int CANCELLED = 2;
  static final int INPUT_ENDED = 3;

  static final int TURN_HAS_TIMESTAMP = 1;
  static final int TURN_HAS_SESSION = 2;
  static final int TURN_HAS_ANSWERS = 4;
  static final int TURN_HAS_BASE = 8;
  static final int STEP_CLEARS_JOURNAL = 1;

  /** The bytes of TURN before its key. */
  static final int TURN_HEAD_BYTES = 4 + 4 + 8 + 1 + 4 + 8 + 8 + 8;

  static final int END_OK = 0;
  static final int END_ERROR_RECORD = 1;
  static final int END_FAIL_JOB = 2;

  static final int SESSION_KEEP = 0;
  static final int SESSION_APPEND = 1;
  static final int SESSION_REPLACE = 2;
  static final int SESSION_CLEAR = 3;

  static final int LENGTH_BYTES = 4;

  /** The size of one read or write: the capacity of a pipe on Linux. */
  static final int PIECE_BYTES = 64 * 1024;

  /** The offset of the flags of STEP: type, operator and turn come first. */
  private static final int STEP_FLAGS = 1 + 4 + 8;

  private Frames() {}

  static byte[] open(int plan, byte[] config) {
    return new Writer(OPEN).u32(plan).bytes(config).frame();
  }

  static byte[] session(int operator, long turn, long sessionVersion, List<byte[]> chunks) {
    return new Writer(SESSION, 4 + 8 + 8 + sizeOf(chunks))
        .u32(operator)
        .u64(turn)
        .u64(sessionVersion)
        .list(chunks)
        .frame();
  }

  /** Return a frame with an answer to a wait of a turn that the worker runs. */
  static byte[] answer(int operator, long turn, String waitId, WaitState.Answer answer) {
    return new Writer(ANSWER).u32(operator).u64(turn).answer(waitId, answer).frame();
  }

  static boolean isTurn(byte[] frame) {
    return frame.length > LENGTH_BYTES && frame[LENGTH_BYTES] == TURN;
  }

  static byte[] cancel(int operator) {
    return new Writer(CANCEL).u32(operator).frame();
  }

  /** Return a frame to which a running worker responds with {@link #PONG}. */
  static byte[] ping() {
    return new Writer(PING).frame();
  }

  static byte[] close() {
    return new Writer(CLOSE).frame();
  }

  /** A frame that cannot be read, or must not be sent. */
  static final class FrameException extends IOException {
    private static final long serialVersionUID = 1L;

    FrameException(String message) {
      super(message);
    }
  }

  /** One frame under construction. */
  static final class Writer {
    private static final int INITIAL_BYTES = 128;

    private byte[] buffer;
    private int size = LENGTH_BYTES;

    Writer(int type) {
      buffer = new byte[INITIAL_BYTES];
      u8(type);
    }

    /** A writer for a body of that size, which builds a large frame without a copy. */
    Writer(int type, long bodyBytes) {
      buffer = new byte[0];
      size = 0;
      reserve(LENGTH_BYTES + 1 + bodyBytes);
      size = LENGTH_BYTES;
      u8(type);
    }

    Writer u8(int value) {
      reserve(1);
      buffer[size++] = (byte) value;
      return this;
    }

    Writer u32(int value) {
      reserve(4);
      putInt(buffer, size, value);
      size += 4;
      return this;
    }

    Writer u64(long value) {
      return u32((int) (value >>> 32)).u32((int) value);
    }

    Writer bytes(byte[] value) {
      return bytes(value, 0);
    }

    /** Write the bytes of {@code value} that follow an offset. */
    Writer bytes(byte[] value, int offset) {
      int length = value.length - offset;
      reserve(4L + length);
      putInt(buffer, size, length);
      System.arraycopy(value, offset, buffer, size + 4, length);
      size += 4 + length;
      return this;
    }

    /** Write a string, see {@link FrameText#encode}. */
    Writer str(String value) {
      return bytes(FrameText.encode(value));
    }

    Writer list(List<byte[]> values) {
      u32(values.size());
      for (byte[] value : values) {
        bytes(value);
      }
      return this;
    }

    Writer answer(String waitId, WaitState.Answer answer) {
      return str(waitId).u8(answer.kind()).u64(answer.at()).bytes(answer.value());
    }

    byte[] frame() {
      putInt(buffer, 0, size - LENGTH_BYTES);
      return size == buffer.length ? buffer : Arrays.copyOf(buffer, size);
    }

    private void reserve(long more) {
      long needed = size + more;
      if (needed > MAX_FRAME_BYTES + (long) LENGTH_BYTES) {
        throw new IllegalStateException(
            String.format(
                "A frame for the agent worker needs %d bytes, more than the limit of %d. Keep"
                    + " events and sessions smaller, for example by passing a path or an object"
                    + " key.",
                needed, MAX_FRAME_BYTES));
      }
      if (needed > buffer.length) {
        long doubled = Math.min(buffer.length * 2L, MAX_FRAME_BYTES + (long) LENGTH_BYTES);
        buffer = Arrays.copyOf(buffer, (int) Math.max(doubled, needed));
      }
    }
  }

  /** A value for an output; the empty tag is the main output. */
  record Output(String tag, byte[] value) {}

  /** A received frame with a cursor over its body. */
  static final class Frame {
    private final byte[] content;
    private int position = 1;

    /** {@code content} is the type byte and the body. */
    Frame(byte[] content) {
      this.content = content;
    }

    int type() {
      return content[0] & 0xFF;
    }

    /** Return the type byte and the body. */
    byte[] content() {
      return content;
    }

    /** Return true if a turn has ended or waits, or a step that a restart does not repeat. */
    boolean isProgress() {
      return type() == END
          || type() == PARK
          || type() == WAIT
          || type() == STEP
              && content.length > STEP_FLAGS
              && (content[STEP_FLAGS] & STEP_CLEARS_JOURNAL) == 0;
    }

    int u8() throws FrameException {
      require(1);
      return content[position++] & 0xFF;
    }

    int u32() throws FrameException {
      require(4);
      int value = getInt(content, position);
      position += 4;
      return value;
    }

    long u64() throws FrameException {
      long high = u32() & 0xFFFFFFFFL;
      return high << 32 | u32() & 0xFFFFFFFFL;
    }

    byte[] bytes() throws FrameException {
      int length = u32();
      require(length);
      byte[] value = Arrays.copyOfRange(content, position, position + length);
      position += length;
      return value;
    }

    String str() throws FrameException {
      int length = u32();
      require(length);
      String value = new String(content, position, length, StandardCharsets.UTF_8);
      position += length;
      return value;
    }

    List<byte[]> list() throws FrameException {
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
    void skip() throws FrameException {
      int length = u32();
      require(length);
      position += length;
    }

    /** Return the number of unread bytes. */
    int left() {
      return content.length - position;
    }

    /** Read the values to emit. */
    List<Output> outputs() throws FrameException {
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

  /** Return the size of a list in a body, in bytes. */
  static long sizeOf(List<byte[]> values) {
    long size = LENGTH_BYTES;
    for (byte[] value : values) {
      size += LENGTH_BYTES + value.length;
    }
    return size;
  }

  /** Return the size of a string and two lists in a body, in bytes. */
  static long sizeOf(String text, List<byte[]> first, List<byte[]> second) {
    return LENGTH_BYTES
        + text.getBytes(StandardCharsets.UTF_8).length
        + sizeOf(first)
        + sizeOf(second);
  }

  private static void putInt(byte[] target, int offset, int value) {
    target[offset] = (byte) (value >>> 24);
    target[offset + 1] = (byte) (value >>> 16);
    target[offset + 2] = (byte) (value >>> 8);
    target[offset + 3] = (byte) value;
  }

  static int getInt(byte[] source, int offset) {
    return (source[offset] & 0xFF) << 24
        | (source[offset + 1] & 0xFF) << 16
        | (source[offset + 2] & 0xFF) << 8
        | (source[offset + 3] & 0xFF);
  }
}
