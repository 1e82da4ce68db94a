package org.flinkskills.bridge.turns;

import java.nio.ByteBuffer;
import org.flinkskills.bridge.frames.FrameWriter;

/**
 * Formats of the bytes in keyed state. Each starts with its version, so that a later release can
 * read it.
 */
public final class TurnState {
  static final byte VERSION = 1;

  private static final int COUNTERS_BYTES = 1 + 4 * Long.BYTES;
  private static final int EVENT_HEADER_BYTES = 2 + Long.BYTES;

  private TurnState() {}

  /**
   * The counters of a key, state {@code turns}: {@code u8 version, u64 turnsDone, u64 head, u64
   * tail, u64 sessionVersion}. Waiting events have the numbers head (inclusive) to tail
   * (exclusive).
   */
  public record Counters(long turnsDone, long head, long tail, long sessionVersion) {
    static final Counters NONE = new Counters(0, 0, 0, 0);

    public byte[] encode() {
      return ByteBuffer.allocate(COUNTERS_BYTES)
          .put(VERSION)
          .putLong(turnsDone)
          .putLong(head)
          .putLong(tail)
          .putLong(sessionVersion)
          .array();
    }

    public static Counters decode(byte[] bytes) {
      ByteBuffer buffer = open("turns", bytes, COUNTERS_BYTES);
      return new Counters(buffer.getLong(), buffer.getLong(), buffer.getLong(), buffer.getLong());
    }
  }

  /**
   * A waiting event, state {@code pending}: {@code u8 version, u8 hasTimestamp, i64 timestamp},
   * then the event as it arrived.
   */
  public record Event(boolean hasTimestamp, long timestamp, byte[] encoded) {
    /** No event. */
    static final Event NONE = new Event(false, 0, new byte[EVENT_HEADER_BYTES]);

    public static byte[] encode(boolean hasTimestamp, long timestamp, byte[] event) {
      return ByteBuffer.allocate(EVENT_HEADER_BYTES + event.length)
          .put(VERSION)
          .put((byte) (hasTimestamp ? 1 : 0))
          .putLong(hasTimestamp ? timestamp : 0)
          .put(event)
          .array();
    }

    public static Event decode(byte[] bytes) {
      ByteBuffer buffer = open("pending", bytes, EVENT_HEADER_BYTES);
      return new Event(buffer.get() != 0, buffer.getLong(), bytes);
    }

    /** The bytes of the event in a frame. */
    long size() {
      return 4L + encoded.length - EVENT_HEADER_BYTES;
    }

    void writeTo(FrameWriter frame) {
      frame.bytes(encoded, EVENT_HEADER_BYTES);
    }
  }

  /** Encode the number of the first event that stays when a key is erased. */
  static byte[] encodeForget(long before) {
    return ByteBuffer.allocate(1 + 8).put(VERSION).putLong(before).array();
  }

  static long decodeForget(byte[] bytes) {
    return open("pending", bytes, 1 + 8).getLong();
  }

  private static ByteBuffer open(String state, byte[] bytes, int leastBytes) {
    byte version = bytes.length == 0 ? 0 : bytes[0];
    if (version != VERSION) {
      throw new IllegalStateException(
          String.format(
              "The keyed state '%s' of this agent has format version %d, and this release of"
                  + " flink_skills reads version %d. Restore with the release that wrote the"
                  + " savepoint, or a newer one.",
              state, version & 0xFF, VERSION));
    }
    if (bytes.length < leastBytes) {
      throw new IllegalStateException(
          String.format(
              "An entry of the keyed state '%s' of this agent is truncated: expected at least %d"
                  + " bytes, got %d. The savepoint is damaged; restore from another one.",
              state, leastBytes, bytes.length));
    }
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    buffer.get();
    return buffer;
  }
}
