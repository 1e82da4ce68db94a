package org.flinkskills.bridge.frames;

import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Frames that the JVM and a worker process exchange over the worker's standard input and output.
 *
 * <p>A frame is {@code u32 length | u8 type | body}; the length counts the type and the body. Whole
 * numbers are big-endian. {@code bytes} is {@code u32 length + bytes}, {@code str} the same in
 * UTF-8, a list is {@code u32 count} and then its items. The JVM never parses events, sessions,
 * journal entries or outputs: they are {@code bytes}.
 */
public final class Frames {

  /** The longest frame either side may send, in bytes. */
  public static final int MAX_FRAME_BYTES = 256 * 1024 * 1024;

  /**
   * The format of frames, which the first frame of a worker states. A worker refuses another one.
   * Increase it, and the one of the worker, if an older side must not read a frame.
   */
  public static final int FORMAT = 1;

  public static final int OPEN = 0x01;
  public static final int TURN = 0x02;
  public static final int SESSION = 0x03;
  public static final int CANCEL = 0x04;
  public static final int CLOSE = 0x05;
  public static final int PING = 0x06;
  public static final int ANSWER = 0x07;
  public static final int CONTROL = 0x08;

  public static final int OPENED = 0x81;
  public static final int OPEN_FAILED = 0x82;

  /** Opening again later may succeed. */
  public static final int OPEN_FAILED_RETRYABLE = 1;

  public static final int STEP = 0x83;
  public static final int END = 0x84;
  public static final int NEED_SESSION = 0x85;
  public static final int METRICS = 0x86;
  public static final int EVENTS = 0x87;
  public static final int OUTPUTS = 0x88;
  public static final int PONG = 0x89;
  public static final int WAIT = 0x8A;
  public static final int PARK = 0x8B;
  public static final int CONTROLLED = 0x8C;

  /** Operations of WAIT. */
  public static final int WAIT_OPEN = 0;

  public static final int WAIT_CLOSE = 1;
  public static final int WAIT_REJECT = 2;
  public static final int WAIT_CANCEL = 3;

  /** Kinds of answers to waits. */
  public static final int ANSWERED = 0;

  public static final int TIMED_OUT = 1;
  public static final int CANCELLED = 2;
  public static final int INPUT_ENDED = 3;

  public static final int TURN_HAS_TIMESTAMP = 1;
  public static final int TURN_HAS_SESSION = 2;
  public static final int TURN_HAS_ANSWERS = 4;
  public static final int TURN_HAS_BASE = 8;
  public static final int TURN_IS_REFUSED = 16;

  /** No turn of an event: the worker erases what it has of the key. */
  public static final int TURN_FORGETS = 32;

  public static final int STEP_CLEARS_JOURNAL = 1;

  /** The bytes of TURN before its key. */
  public static final int TURN_HEAD_BYTES = 4 + 4 + 8 + 1 + 4 + 8 + 8 + 8;

  public static final int END_OK = 0;
  public static final int END_ERROR_RECORD = 1;
  public static final int END_FAIL_JOB = 2;

  /** Added to the status of a turn that erases its key at its end. */
  public static final int END_FORGETS = 16;

  public static final int SESSION_KEEP = 0;
  public static final int SESSION_APPEND = 1;
  public static final int SESSION_REPLACE = 2;
  public static final int SESSION_CLEAR = 3;

  public static final int LENGTH_BYTES = 4;

  /** The size of one read or write: the capacity of a pipe on Linux. */
  static final int CHUNK_BYTES = 64 * 1024;

  private Frames() {}

  public static byte[] open(int plan, byte[] config) {
    return new FrameWriter(OPEN).u32(plan).bytes(config).frame();
  }

  public static byte[] session(int operator, long turn, long sessionVersion, List<byte[]> chunks) {
    return new FrameWriter(SESSION, 4 + 8 + 8 + sizeOf(chunks))
        .u32(operator)
        .u64(turn)
        .u64(sessionVersion)
        .list(chunks)
        .frame();
  }

  public static boolean isTurn(byte[] frame) {
    return frame.length > LENGTH_BYTES && frame[LENGTH_BYTES] == TURN;
  }

  public static byte[] cancel(int operator) {
    return new FrameWriter(CANCEL).u32(operator).frame();
  }

  /** Return a frame to which a running worker responds with {@link #PONG}. */
  public static byte[] ping() {
    return new FrameWriter(PING).frame();
  }

  public static byte[] close() {
    return new FrameWriter(CLOSE).frame();
  }

  /** Return the size of a list in a body, in bytes. */
  public static long sizeOf(List<byte[]> values) {
    long size = LENGTH_BYTES;
    for (byte[] value : values) {
      size += LENGTH_BYTES + value.length;
    }
    return size;
  }

  /** Return the size of a string and two lists in a body, in bytes. */
  public static long sizeOf(String text, List<byte[]> first, List<byte[]> second) {
    return LENGTH_BYTES
        + text.getBytes(StandardCharsets.UTF_8).length
        + sizeOf(first)
        + sizeOf(second);
  }

  static void putInt(byte[] target, int offset, int value) {
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
