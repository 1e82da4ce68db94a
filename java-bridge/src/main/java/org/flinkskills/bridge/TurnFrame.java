package org.flinkskills.bridge;

import java.util.List;

/** The frame that starts a turn in a worker. */
final class TurnFrame {
  private TurnFrame() {}

  /** Returns the bytes of the frame's type and body. The arguments are those of {@link #of}. */
  static long size(
      WorkerSlot.Turn turn, TurnState.Event event, List<byte[]> session, List<byte[]> journal) {
    List<byte[]> chunks = session == null ? List.of() : session;
    return 1L
        + Frames.TURN_HEAD_BYTES
        + event.size()
        + Frames.sizeOf(turn.key.name, chunks, journal);
  }

  /**
   * @param session the chunks of the session; null if the worker has it
   */
  static byte[] of(
      int operator,
      int plan,
      WorkerSlot.Turn turn,
      TurnState.Event event,
      List<byte[]> session,
      List<byte[]> journal) {
    KeyedTurns.Key key = turn.key;
    int flags =
        (event.hasTimestamp() ? Frames.TURN_HAS_TIMESTAMP : 0)
            | (session == null ? 0 : Frames.TURN_HAS_SESSION);
    List<byte[]> chunks = session == null ? List.of() : session;
    Frames.Writer frame =
        new Frames.Writer(Frames.TURN, size(turn, event, session, journal) - 1)
            .u32(operator)
            .u32(plan)
            .u64(turn.id)
            .u8(flags)
            .u32(turn.crashes)
            .u64(event.timestamp())
            .u64(key.turnsDone + 1)
            .u64(key.sessionVersion)
            .str(key.name);
    event.writeTo(frame);
    return frame.list(chunks).list(journal).frame();
  }
}
