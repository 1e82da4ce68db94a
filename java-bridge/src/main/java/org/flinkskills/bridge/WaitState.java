package org.flinkskills.bridge;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Formats of the bytes in the keyed state {@code waits}. Each begins with its version, which an
 * earlier release does not know.
 */
final class WaitState {
  static final byte VERSION = 2;

  static final int EVENT_TIME = 1;
  static final int SLEEP = 2;

  /** A wait's deadline without one. */
  static final long NO_DEADLINE = Long.MAX_VALUE;

  private static final int NONE = -1;

  private WaitState() {}

  /** The status of an entry. */
  enum Status {
    /** A turn waits for an answer, or has one that it has not consumed. */
    OPEN,
    /** An answer has arrived before its question. */
    EARLY,
    /** The wait has ended. */
    DONE
  }

  /**
   * An answer to a wait, or its end without one.
   *
   * @param kind one of the kinds in {@link Frames}
   * @param at the time in milliseconds since 1970
   * @param value the answer as it arrived
   */
  record Answer(int kind, long at, byte[] value) {
    private static final byte[] NOTHING = {};

    /** Return the end of a wait without an answer. */
    static Answer without(int kind, long at) {
      return new Answer(kind, at, NOTHING);
    }
  }

  /**
   * A wait, or an answer that has arrived before its question.
   *
   * @param turn the event's number
   * @param since the question's time in milliseconds since 1970
   * @param deadline in milliseconds since 1970, or {@link #NO_DEADLINE}
   * @param answer null without an answer
   */
  record Wait(
      Status status, long turn, String name, int flags, long since, long deadline, Answer answer) {

    /** Return an answer that has arrived before its question. */
    static Wait early(Answer answer, long until) {
      return new Wait(Status.EARLY, NONE, "", 0, answer.at(), until, answer);
    }

    Wait with(Answer given) {
      return new Wait(status, turn, name, flags, since, deadline, given);
    }

    /** Return the ended wait, which is known until a time. */
    Wait done(int kind, long at, long until) {
      return new Wait(Status.DONE, turn, name, 0, since, until, Answer.without(kind, at));
    }

    /** Return true if a turn waits, and no answer has arrived. */
    boolean isUnanswered() {
      return status == Status.OPEN && answer == null;
    }

    boolean isEventTime() {
      return (flags & EVENT_TIME) != 0;
    }

    boolean isSleep() {
      return (flags & SLEEP) != 0;
    }

    byte[] encode() {
      byte[] text = FrameText.encode(name);
      byte[] value = answer == null ? Answer.NOTHING : answer.value;
      return ByteBuffer.allocate(1 + 1 + 8 + 4 + text.length + 1 + 8 + 8 + 1 + 8 + 4 + value.length)
          .put(VERSION)
          .put((byte) status.ordinal())
          .putLong(turn)
          .putInt(text.length)
          .put(text)
          .put((byte) flags)
          .putLong(since)
          .putLong(deadline)
          .put((byte) (answer == null ? NONE : answer.kind))
          .putLong(answer == null ? 0 : answer.at)
          .putInt(value.length)
          .put(value)
          .array();
    }

    static Wait decode(byte[] bytes) {
      ByteBuffer buffer = open(bytes);
      Status status = Status.values()[buffer.get()];
      long turn = buffer.getLong();
      String name = new String(read(buffer), StandardCharsets.UTF_8);
      int flags = buffer.get();
      long since = buffer.getLong();
      long deadline = buffer.getLong();
      int kind = buffer.get();
      long at = buffer.getLong();
      byte[] value = read(buffer);
      Answer answer = kind == NONE ? null : new Answer(kind, at, value);
      return new Wait(status, turn, name, flags, since, deadline, answer);
    }
  }

  /**
   * A turn that has waited and has not ended.
   *
   * @param running true if the turn has resumed
   * @param overtaken true if later events of the key do not wait for the turn
   * @param since the time since which the turn waits, in milliseconds since 1970
   * @param journal the finished steps of a waiting turn that other turns have overtaken
   * @param session the chunks of the session at the turn's start; null if they are not stored
   */
  record WaitingTurn(
      boolean running, boolean overtaken, long since, List<byte[]> journal, List<byte[]> session) {
    private static final int RUNNING = 1;
    private static final int HAS_SESSION = 2;
    private static final int OVERTAKEN = 4;

    /** Return the turn that has resumed, whose journal is that of the key. */
    WaitingTurn resumed() {
      return new WaitingTurn(true, overtaken, since, List.of(), session);
    }

    byte[] encode() {
      List<byte[]> chunks = session == null ? List.of() : session;
      long size = 1 + 1 + 8 + Frames.sizeOf(journal) + Frames.sizeOf(chunks);
      ByteBuffer buffer =
          ByteBuffer.allocate(Math.toIntExact(size))
              .put(VERSION)
              .put((byte) flags())
              .putLong(since);
      write(buffer, journal);
      write(buffer, chunks);
      return buffer.array();
    }

    private int flags() {
      return (running ? RUNNING : 0)
          | (session == null ? 0 : HAS_SESSION)
          | (overtaken ? OVERTAKEN : 0);
    }

    static WaitingTurn decode(byte[] bytes) {
      ByteBuffer buffer = open(bytes);
      int flags = buffer.get();
      long since = buffer.getLong();
      List<byte[]> journal = readAll(buffer);
      List<byte[]> session = readAll(buffer);
      return new WaitingTurn(
          (flags & RUNNING) != 0,
          (flags & OVERTAKEN) != 0,
          since,
          journal,
          (flags & HAS_SESSION) == 0 ? null : session);
    }

    private static void write(ByteBuffer buffer, List<byte[]> values) {
      buffer.putInt(values.size());
      for (byte[] value : values) {
        buffer.putInt(value.length).put(value);
      }
    }

    private static List<byte[]> readAll(ByteBuffer buffer) {
      int count = buffer.getInt();
      List<byte[]> values = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        values.add(read(buffer));
      }
      return values;
    }
  }

  private static byte[] read(ByteBuffer buffer) {
    byte[] value = new byte[buffer.getInt()];
    buffer.get(value);
    return value;
  }

  private static ByteBuffer open(byte[] bytes) {
    byte version = bytes.length == 0 ? 0 : bytes[0];
    if (version != VERSION) {
      throw new IllegalStateException(
          String.format(
              "The keyed state 'waits' of this agent has format version %d, and this release of"
                  + " flink_skills reads version %d. Restore with the release that wrote the savepoint,"
                  + " or a newer one.",
              version & 0xFF, VERSION));
    }
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    buffer.get();
    return buffer;
  }
}
