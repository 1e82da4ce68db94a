package org.flinkskills.bridge;

import java.io.IOException;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
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
    TurnAnswers answers = new TurnAnswers();
    try {
      for (Frame frame : frames) {
        dispatch(worker, epoch, frame, answers);
      }
    } finally {
      // The frames before a broken one are valid.
      answers.forEach((operator, found) -> deliver(worker, epoch, operator, found));
    }
  }

  private void dispatch(WorkerProcess worker, int epoch, Frame frame, TurnAnswers answers)
      throws IOException {
    switch (frame.type()) {
      case Frames.STEP, Frames.END, Frames.NEED_SESSION, Frames.OUTPUTS, Frames.WAIT, Frames.PARK ->
          answers.add(frame);
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

  private void deliver(WorkerProcess worker, int epoch, int operator, List<Frame> answers) {
    WorkerListener listener = operators.listener(operator);
    if (listener == null) {
      return;
    }
    listener.onFrames(worker.index(), epoch, answers);
    for (Frame answer : answers) {
      if (answer.type() == Frames.END || answer.type() == Frames.PARK) {
        lanes[worker.index()].ended(operator, epoch);
      }
    }
  }
}
