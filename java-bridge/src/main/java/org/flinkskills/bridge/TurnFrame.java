package org.flinkskills.bridge;

import java.util.List;

/** Frame that starts a turn in a worker. */
final class TurnFrame {
  private TurnFrame() {}

  /** Return the bytes of the frame's type and body. The arguments are those of {@link #of}. */
  static long size(
      WorkerSlot.Turn turn, TurnState.Event event, List<byte[]> session, List<byte[]> journal) {
    List<byte[]> chunks = session == null ? List.of() : session;
    return 1L
        + Frames.TURN_HEAD_BYTES
        + event.size()
        + Frames.sizeOf(turn.key.name, chunks, journal);
  }

  /**
   * Encode the frame.
   *
   * @param session the chunks of the session; null if the worker has it
   */
  static byte[] of(
      PoolConnection connection,
      WorkerSlot.Turn turn,
      TurnState.Event event,
      List<byte[]> session,
      List<byte[]> journal) {
    ActiveKey key = turn.key;
    int flags =
        (event.hasTimestamp() ? Frames.TURN_HAS_TIMESTAMP : 0)
            | (session == null ? 0 : Frames.TURN_HAS_SESSION);
    List<byte[]> chunks = session == null ? List.of() : session;
    Frames.Writer frame =
        new Frames.Writer(Frames.TURN, size(turn, event, session, journal) - 1)
            .u32(connection.operator())
            .u32(connection.planId())
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
