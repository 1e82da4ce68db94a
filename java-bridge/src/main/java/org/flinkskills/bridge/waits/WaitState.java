package org.flinkskills.bridge.waits;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.frames.Frames;

/**
 * Formats of the bytes in the keyed state {@code waits}. Each starts with its version, which an
 * earlier release rejects.
 */
public final class WaitState {
  static final byte VERSION = 3;

  /** The oldest version that this release reads: one answer for each wait, and no indexes. */
  private static final byte OLDEST = 2;

  static final int EVENT_TIME = 1;
  public static final int SLEEP = 2;

  /** The wait accepts its id only, and no answer with its name. */
  public static final int ID_ONLY = 4;

  /** In a close: no answer of the operator has ended the wait. */
  public static final int UNANSWERED = 8;

  /** A wait's deadline without one. */
  public static final long NO_DEADLINE = Long.MAX_VALUE;

  /** The position of a wait that is in no index. */
  static final long NO_POSITION = -1;

  private static final int NONE = -1;
  private static final int ID_LENGTH = 32;

  private WaitState() {}

  /** Return true if a text has the form of a wait's id. Names have another form. */
  static boolean isId(String text) {
    return text.length() == ID_LENGTH
        && text.chars().allMatch(c -> c >= '0' && c <= '9' || c >= 'a' && c <= 'f');
  }

  /** The status of an entry. */
  public enum Status {
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
  public record Answer(int kind, long at, byte[] value) {
    private static final byte[] NOTHING = {};

    /** Return the end of a wait without an answer. */
    public static Answer without(int kind, long at) {
      return new Answer(kind, at, NOTHING);
    }

    /** Return true if a person or program has sent the answer. */
    boolean isSent() {
      return kind == Frames.ANSWERED;
    }

    public void writeTo(FrameWriter frame, String waitId) {
      frame.str(waitId).u8(kind).u64(at).bytes(value);
    }
  }

  /**
   * A wait, or answers that have arrived before their question.
   *
   * @param turn the event's number
   * @param since the question's time in milliseconds since 1970
   * @param deadline in milliseconds since 1970, or {@link #NO_DEADLINE}
   * @param answers the current answer, then those that follow if the turn rejects it; an ended wait
   *     has its end
   * @param ofTurn its position among the open waits of its turn, or {@link #NO_POSITION}
   * @param ofName its position among the open waits of its name, or {@link #NO_POSITION}
   */
  public record Wait(
      Status status,
      long turn,
      String name,
      int flags,
      long since,
      long deadline,
      List<Answer> answers,
      long ofTurn,
      long ofName) {

    /** Return an open wait that is in no index. */
    static Wait opened(long turn, String name, int flags, long since, long deadline) {
      return new Wait(
          Status.OPEN, turn, name, flags, since, deadline, List.of(), NO_POSITION, NO_POSITION);
    }

    /** Return an answer that has arrived before its question. */
    static Wait early(Answer answer, long until) {
      return new Wait(
          Status.EARLY, NONE, "", 0, answer.at(), until, List.of(answer), NO_POSITION, NO_POSITION);
    }

    Wait with(List<Answer> replaced) {
      return new Wait(status, turn, name, flags, since, deadline, replaced, ofTurn, ofName);
    }

    /** Return the wait with an answer behind its others. */
    Wait and(Answer next) {
      List<Answer> all = new ArrayList<>(answers);
      all.add(next);
      return with(all);
    }

    /** Return the wait without its current answer. */
    Wait next() {
      return with(answers.subList(1, answers.size()));
    }

    Wait at(long turnPosition, long namePosition) {
      return new Wait(
          status, turn, name, flags, since, deadline, answers, turnPosition, namePosition);
    }

    /** Return the ended wait, which is stored until a time. */
    Wait done(int kind, long at, long until) {
      List<Answer> end = List.of(Answer.without(kind, at));
      return new Wait(Status.DONE, turn, name, 0, since, until, end, NO_POSITION, NO_POSITION);
    }

    /** Return the current answer, or null. */
    public Answer answer() {
      return answers.isEmpty() ? null : answers.get(0);
    }

    boolean isOpen() {
      return status == Status.OPEN;
    }

    /** Return true if a turn waits, and no answer has arrived. */
    boolean isUnanswered() {
      return isOpen() && answers.isEmpty();
    }

    boolean isEventTime() {
      return (flags & EVENT_TIME) != 0;
    }

    boolean isSleep() {
      return (flags & SLEEP) != 0;
    }

    boolean isIdOnly() {
      return (flags & ID_ONLY) != 0;
    }

    byte[] encode() {
      byte[] text = FrameWriter.utf8(name);
      int size = 1 + 1 + 8 + 4 + text.length + 1 + 8 + 8 + 8 + 8 + 4;
      for (Answer answer : answers) {
        size += 1 + 8 + 4 + answer.value.length;
      }
      ByteBuffer buffer =
          ByteBuffer.allocate(size)
              .put(VERSION)
              .put((byte) status.ordinal())
              .putLong(turn)
              .putInt(text.length)
              .put(text)
              .put((byte) flags)
              .putLong(since)
              .putLong(deadline)
              .putLong(ofTurn)
              .putLong(ofName)
              .putInt(answers.size());
      for (Answer answer : answers) {
        buffer.put((byte) answer.kind).putLong(answer.at).putInt(answer.value.length);
        buffer.put(answer.value);
      }
      return buffer.array();
    }

    static Wait decode(byte[] bytes) {
      ByteBuffer buffer = open(bytes);
      Status status = Status.values()[buffer.get()];
      long turn = buffer.getLong();
      String name = new String(read(buffer), StandardCharsets.UTF_8);
      int flags = buffer.get();
      long since = buffer.getLong();
      long deadline = buffer.getLong();
      boolean isOldest = bytes[0] == OLDEST;
      long ofTurn = isOldest ? NO_POSITION : buffer.getLong();
      long ofName = isOldest ? NO_POSITION : buffer.getLong();
      int count = isOldest ? 1 : buffer.getInt();
      List<Answer> answers = new ArrayList<>(count);
      for (int i = 0; i < count; i++) {
        Answer answer = new Answer(buffer.get(), buffer.getLong(), read(buffer));
        if (answer.kind != NONE) {
          answers.add(answer);
        }
      }
      return new Wait(status, turn, name, flags, since, deadline, answers, ofTurn, ofName);
    }
  }

  /**
   * Positions of a list of waits.
   *
   * @param first the position of the first wait
   * @param free the first position that may have a wait without an answer
   * @param next the position behind the last wait
   * @param count the number of waits
   */
  record Positions(long first, long free, long next, int count) {
    static final Positions NONE = new Positions(0, 0, 0, 0);

    Positions withFree(long position) {
      return new Positions(first, position, next, count);
    }

    byte[] encode() {
      return ByteBuffer.allocate(1 + 3 * Long.BYTES + Integer.BYTES)
          .put(VERSION)
          .putLong(first)
          .putLong(free)
          .putLong(next)
          .putInt(count)
          .array();
    }

    static Positions decode(byte[] bytes) {
      ByteBuffer buffer = open(bytes);
      return new Positions(buffer.getLong(), buffer.getLong(), buffer.getLong(), buffer.getInt());
    }
  }

  static byte[] encodeText(String text) {
    byte[] encoded = FrameWriter.utf8(text);
    return ByteBuffer.allocate(1 + encoded.length).put(VERSION).put(encoded).array();
  }

  static String decodeText(byte[] bytes) {
    ByteBuffer buffer = open(bytes);
    return new String(bytes, buffer.position(), buffer.remaining(), StandardCharsets.UTF_8);
  }

  /**
   * A turn that has waited and has not ended.
   *
   * @param running true if the turn has resumed
   * @param overtaken true if later events of the key do not wait for the turn
   * @param since the time since which the turn waits, in milliseconds since 1970
   */
  public record WaitingTurn(boolean running, boolean overtaken, long since) {
    private static final int RUNNING = 1;
    private static final int OVERTAKEN = 4;

    byte[] encode() {
      return ByteBuffer.allocate(1 + 1 + 8)
          .put(VERSION)
          .put((byte) ((running ? RUNNING : 0) | (overtaken ? OVERTAKEN : 0)))
          .putLong(since)
          .array();
    }

    static WaitingTurn decode(byte[] bytes) {
      ByteBuffer buffer = open(bytes);
      int flags = buffer.get();
      return new WaitingTurn((flags & RUNNING) != 0, (flags & OVERTAKEN) != 0, buffer.getLong());
    }
  }

  /**
   * Journal and session of a turn that has waited, separate from those of the key.
   *
   * @param journal its finished steps, unless the key's journal has them
   * @param session the chunks of the session at the turn's start; null if they are not stored
   */
  public record Content(List<byte[]> journal, List<byte[]> session) {
    static final Content NOTHING = new Content(List.of(), null);

    private static final int HAS_SESSION = 2;

    boolean isNothing() {
      return journal.isEmpty() && session == null;
    }

    byte[] encode() {
      List<byte[]> chunks = session == null ? List.of() : session;
      long size = 1 + 1 + Frames.sizeOf(journal) + Frames.sizeOf(chunks);
      ByteBuffer buffer =
          ByteBuffer.allocate(Math.toIntExact(size))
              .put(VERSION)
              .put((byte) (session == null ? 0 : HAS_SESSION));
      write(buffer, journal);
      write(buffer, chunks);
      return buffer.array();
    }

    /** Decode the content, or the whole turn of the oldest version. */
    static Content decode(byte[] bytes) {
      ByteBuffer buffer = open(bytes);
      int flags = buffer.get();
      if (bytes[0] == OLDEST) {
        buffer.getLong();
      }
      List<byte[]> journal = readAll(buffer);
      List<byte[]> session = readAll(buffer);
      return new Content(journal, (flags & HAS_SESSION) == 0 ? null : session);
    }

    /** Decode the content of a turn of the oldest version, which is in the turn itself. */
    static Content decodeTurn(byte[] bytes) {
      return bytes[0] == OLDEST ? decode(bytes) : NOTHING;
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
    if (version < OLDEST || version > VERSION) {
      throw new IllegalStateException(
          String.format(
              "The keyed state 'waits' of this agent has format version %d, and this release of"
                  + " flink_skills reads versions %d to %d. Restore with the release that wrote the"
                  + " savepoint, or a newer one.",
              version & 0xFF, OLDEST, VERSION));
    }
    ByteBuffer buffer = ByteBuffer.wrap(bytes);
    buffer.get();
    return buffer;
  }
}
