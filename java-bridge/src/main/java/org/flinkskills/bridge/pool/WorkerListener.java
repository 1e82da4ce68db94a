package org.flinkskills.bridge.pool;

import java.util.List;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.metrics.WorkerReport;

/**
 * Listener of one operator for the reports of its pool.
 *
 * <p>The threads of the pool call the methods, some of them with a lock held. So a method must not
 * block.
 */
public interface WorkerListener {

  /** Results of turns arrived from a worker, in this order. */
  void onFrames(int worker, int epoch, List<Frame> frames);

  /** The worker has opened the operator's plan and accepts turns. */
  void onReady(int worker, int epoch);

  /** The process of a worker has exited. All frames that were sent in its epoch are lost. */
  void onLost(int worker, int epoch);

  /** The worker accepts turns again after {@link WorkerLane#tryStart} has rejected one. */
  void onLaneFree(int worker);

  /**
   * The operator has the worker alone, until the turns of {@link WorkerLane#startExclusive} have
   * ended.
   */
  void onExclusive(int worker, int epoch);

  /** A worker sent metrics of the plan. One operator of the plan receives them. */
  void onMetrics(int worker, WorkerReport report);

  /** A worker sent events of the plan outside turns. One operator of the plan receives them. */
  void onEvents(List<byte[]> events);

  /** The workers of the pool cannot continue. */
  void onFailure(Exception failure);
}
