package org.flinkskills.bridge.pool;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.AgentRejectedException;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.frames.FrameException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.metrics.WorkerReport;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Dispatcher of the frames of a pool's workers: to operators, and to the plans of the pool. */
final class WorkerFrames {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerFrames.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  private final OpenPlans plans;
  private final PoolOperators operators;
  private final WorkerLane[] lanes;

  /**
   * @param lanes the lanes of the pool; may be filled later
   */
  WorkerFrames(OpenPlans plans, PoolOperators operators, WorkerLane[] lanes) {
    this.plans = plans;
    this.operators = operators;
    this.lanes = lanes;
  }

  /** Dispatch the frames of one read. The supervisor of the worker calls this. */
  void dispatch(WorkerProcess worker, int epoch, List<Frame> frames) throws IOException {
    Map<Integer, List<Frame>> byOperator = new LinkedHashMap<>();
    try {
      for (Frame frame : frames) {
        dispatch(worker, epoch, frame, byOperator);
      }
    } finally {
      // The frames before a broken one are valid.
      byOperator.forEach((operator, found) -> deliver(worker, epoch, operator, found));
    }
  }

  private void dispatch(
      WorkerProcess worker, int epoch, Frame frame, Map<Integer, List<Frame>> byOperator)
      throws IOException {
    switch (frame.type()) {
      case Frames.STEP,
          Frames.END,
          Frames.NEED_SESSION,
          Frames.OUTPUTS,
          Frames.WAIT,
          Frames.PARK,
          Frames.CONTROLLED -> {
        check(new Frame(frame.content()));
        byOperator.computeIfAbsent(frame.u32(), operator -> new ArrayList<>()).add(frame);
      }
      case Frames.OPENED -> plans.opened(worker, epoch, frame.u32(), frame.str());
      case Frames.OPEN_FAILED -> openFailed(worker, epoch, frame);
      case Frames.EVENTS -> plans.events(frame.u32(), frame.list());
      case Frames.METRICS -> plans.metrics(worker, frame.u32(), metrics(frame));
      case Frames.PONG -> LOG.trace("Agent worker {} answered.", worker.index());
      default ->
          throw new FrameException(
              String.format(
                  "The agent worker sent a frame of the unknown type 0x%02x. Worker and bridge"
                      + " jar must be of the same release.",
                  frame.type()));
    }
  }

  private void openFailed(WorkerProcess worker, int epoch, Frame frame) throws FrameException {
    int plan = frame.u32();
    boolean retryable = (frame.u8() & Frames.OPEN_FAILED_RETRYABLE) != 0;
    String message = frame.str();
    plans.openFailed(
        worker,
        epoch,
        plan,
        retryable ? new AgentOpenException(message) : new AgentRejectedException(message));
  }

  private static WorkerReport metrics(Frame frame) throws IOException {
    return WorkerReport.of(JSON.readTree(frame.bytes()));
  }

  private void deliver(WorkerProcess worker, int epoch, int operator, List<Frame> frames) {
    WorkerListener listener = operators.listener(operator);
    if (listener == null) {
      return;
    }
    listener.onFrames(worker.index(), epoch, frames);
    for (Frame frame : frames) {
      if (frame.type() == Frames.END || frame.type() == Frames.PARK) {
        lanes[worker.index()].ended(operator, epoch);
      }
    }
  }

  /**
   * Read a frame of a turn to its end, without a copy of its content.
   *
   * @throws FrameException if the frame is truncated, too long, or has a value that this release
   *     does not support
   */
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
        atMost("status", frame.u8() & ~Frames.END_FORGETS, Frames.END_FAIL_JOB);
        atMost("session operation", frame.u8(), Frames.SESSION_CLEAR);
        skip(frame, 1);
        skip(frame, 2);
        frame.skip();
      }
      case Frames.OUTPUTS -> skip(frame, 2);
      case Frames.CONTROLLED -> frame.skip();
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
    if (frame.remaining() > 0) {
      throw new FrameException(
          String.format(
              "A frame of type 0x%02x from the agent worker has %d bytes too many. Worker and"
                  + " bridge jar must be of the same release.",
              frame.type(), frame.remaining()));
    }
  }

  /** Skip a list whose items have that number of parts. */
  private static void skip(Frame frame, int parts) throws FrameException {
    int items = frame.u32();
    if (items < 0) {
      throw new FrameException("A list in a frame from the agent worker has " + items + " items.");
    }
    for (long remaining = (long) items * parts; remaining > 0; remaining--) {
      frame.skip();
    }
  }

  private static void atMost(String what, int value, int max) throws FrameException {
    if (value > max) {
      throw new FrameException(
          String.format(
              "The agent worker sent the unknown %s %d. Worker and bridge jar must be of the same"
                  + " release.",
              what, value));
    }
  }
}
