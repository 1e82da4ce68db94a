package org.flinkskills.bridge.turns;

import java.util.List;
import java.util.Map;
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.pool.PoolConnection;
import org.flinkskills.bridge.waits.WaitState;

/** Frames that start a turn in a worker, and that pass an answer to it. */
final class TurnFrame {
  private TurnFrame() {}

  /**
   * Content of the frame of a turn that starts again after a wait.
   *
   * @param answers answers by the ids of their waits
   * @param base the session at the turn's start; null if no other turn has overtaken it
   */
  record Resumed(List<Map.Entry<String, WaitState.Answer>> answers, List<byte[]> base) {
    static final Resumed NOTHING = new Resumed(List.of(), null);

    private long size() {
      long size = answers.isEmpty() ? 0 : Frames.LENGTH_BYTES;
      for (Map.Entry<String, WaitState.Answer> answer : answers) {
        size += 4 + FrameWriter.utf8(answer.getKey()).length + 1 + 8 + 4;
        size += answer.getValue().value().length;
      }
      return base == null ? size : size + Frames.sizeOf(base);
    }
  }

  /** Return the bytes of the frame's type and body. The arguments are those of {@link #of}. */
  static long size(
      WorkerSlot.Turn turn,
      TurnState.Event event,
      List<byte[]> session,
      List<byte[]> journal,
      Resumed resumed,
      byte[] refusal) {
    List<byte[]> chunks = session == null ? List.of() : session;
    return 1L
        + Frames.TURN_HEAD_BYTES
        + event.size()
        + Frames.sizeOf(turn.key.name, chunks, journal)
        + resumed.size()
        + (refusal == null ? 0 : Frames.LENGTH_BYTES + refusal.length);
  }

  /**
   * Encode the frame.
   *
   * @param session the chunks of the session; null if the worker has it
   * @param resumed answers, and the session at the start of the turn
   * @param refusal the reason why the event is refused, in UTF-8; null if it is not
   */
  static byte[] of(
      PoolConnection connection,
      WorkerSlot.Turn turn,
      TurnState.Event event,
      List<byte[]> session,
      List<byte[]> journal,
      Resumed resumed,
      byte[] refusal) {
    ActiveKey key = turn.key;
    int flags =
        (event.hasTimestamp() ? Frames.TURN_HAS_TIMESTAMP : 0)
            | (session == null ? 0 : Frames.TURN_HAS_SESSION)
            | (resumed.answers.isEmpty() ? 0 : Frames.TURN_HAS_ANSWERS)
            | (resumed.base == null ? 0 : Frames.TURN_HAS_BASE)
            | (refusal == null ? 0 : Frames.TURN_IS_REFUSED)
            | (turn.forgets() ? Frames.TURN_FORGETS : 0);
    List<byte[]> chunks = session == null ? List.of() : session;
    FrameWriter frame =
        new FrameWriter(Frames.TURN, size(turn, event, session, journal, resumed, refusal) - 1)
            .u32(connection.operator())
            .u32(connection.planId())
            .u64(turn.id)
            .u8(flags)
            .u32(turn.crashes)
            .u64(event.timestamp())
            .u64(turn.number + 1)
            .u64(key.sessionVersion)
            .str(key.name);
    event.writeTo(frame);
    frame.list(chunks).list(journal);
    if (!resumed.answers.isEmpty()) {
      frame.u32(resumed.answers.size());
      resumed.answers.forEach(answer -> answer.getValue().writeTo(frame, answer.getKey()));
    }
    if (resumed.base != null) {
      frame.list(resumed.base);
    }
    if (refusal != null) {
      frame.bytes(refusal);
    }
    return frame.frame();
  }

  /** Return a frame with an answer to a wait of a turn that the worker runs. */
  static byte[] answer(int operator, long turn, String waitId, WaitState.Answer answer) {
    FrameWriter frame = new FrameWriter(Frames.ANSWER).u32(operator).u64(turn);
    answer.writeTo(frame, waitId);
    return frame.frame();
  }
}
