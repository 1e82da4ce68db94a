package org.flinkskills.bridge;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;

/** Frames of turns that one read from a worker returned, by operator. */
final class TurnAnswers {
  private final Map<Integer, List<Frame>> byOperator = new LinkedHashMap<>();

  /**
   * Add a frame, and read its operator.
   *
   * @throws FrameException if the frame is truncated, too long, or has a value that this release
   *     does not support
   */
  void add(Frame frame) throws FrameException {
    check(new Frame(frame.content()));
    byOperator.computeIfAbsent(frame.u32(), operator -> new ArrayList<>()).add(frame);
  }

  void forEach(BiConsumer<Integer, List<Frame>> operatorAndFrames) {
    byOperator.forEach(operatorAndFrames);
  }

  /** Read a frame to its end, without a copy of its content. */
  private static void check(Frame frame) throws FrameException {
    frame.u32();
    frame.u64();
    switch (frame.type()) {
      case Frames.STEP -> {
        frame.u8();
        frame.skip();
        skip(frame, 2);
      }
      case Frames.END -> {
        atMost("status", frame.u8(), Frames.END_FAIL_JOB);
        atMost("session operation", frame.u8(), Frames.SESSION_CLEAR);
        skip(frame, 1);
        skip(frame, 2);
        frame.skip();
      }
      case Frames.OUTPUTS -> skip(frame, 2);
      case Frames.WAIT -> {
        atMost("operation of a wait", frame.u8(), Frames.WAIT_CANCEL);
        frame.skip();
        frame.skip();
        frame.u64();
        frame.u8();
        frame.skip();
        skip(frame, 2);
      }
      default -> {}
    }
    if (frame.left() > 0) {
      throw new FrameException(
          String.format(
              "A frame of type 0x%02x from the agent worker has %d bytes too many. Worker and bridge"
                  + " jar must be of the same release.",
              frame.type(), frame.left()));
    }
  }

  /** Skip a list whose items have that number of parts. */
  private static void skip(Frame frame, int parts) throws FrameException {
    int items = frame.u32();
    if (items < 0) {
      throw new FrameException("A list in a frame from the agent worker has " + items + " items.");
    }
    for (long left = (long) items * parts; left > 0; left--) {
      frame.skip();
    }
  }

  private static void atMost(String what, int value, int most) throws FrameException {
    if (value > most) {
      throw new FrameException(
          String.format(
              "The agent worker sent the unknown %s %d. Worker and bridge jar must be of the same"
                  + " release.",
              what, value));
    }
  }
}
