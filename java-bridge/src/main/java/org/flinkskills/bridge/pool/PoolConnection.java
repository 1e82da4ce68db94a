package org.flinkskills.bridge.pool;

import org.flinkskills.bridge.plan.AgentPlan;

/**
 * Connection of one operator to the workers of its pool, for one plan.
 *
 * <p>The operator's task thread uses it. Turns start after {@link #attach}.
 */
public final class PoolConnection {
  private static final int NOT_ATTACHED = 0;

  private final OpenPlans plans;
  private final WorkerProcess[] workers;
  private final WorkerLane[] lanes;
  private final AgentPlan plan;
  private final int planId;
  private int operator = NOT_ATTACHED;

  /**
   * @param planId the number of the plan in the frames
   */
  PoolConnection(
      OpenPlans plans, WorkerProcess[] workers, WorkerLane[] lanes, AgentPlan plan, int planId) {
    this.plans = plans;
    this.workers = workers;
    this.lanes = lanes;
    this.plan = plan;
    this.planId = planId;
  }

  public AgentPlan plan() {
    return plan;
  }

  /** Return the number of the plan in the frames. */
  public int planId() {
    return planId;
  }

  /** Return the number of the operator in the frames. */
  public int operator() {
    return operator;
  }

  public int workers() {
    return workers.length;
  }

  /**
   * Register a listener for the reports of the workers.
   *
   * @return for each worker the epoch in which it accepts turns, or 0 if it accepts none yet
   */
  public int[] attach(WorkerListener listener) throws Exception {
    OpenPlans.Attachment attachment = plans.attach(planId, listener);
    operator = attachment.operator();
    return attachment.readyEpochs();
  }

  /** Cancel the operator's turns. Does nothing if it is not attached. */
  public void detach() {
    if (operator != NOT_ATTACHED) {
      plans.detach(operator);
    }
  }

  /** Count a turn as running, see {@link WorkerLane#tryStart}. */
  public boolean tryStart(int worker, int epoch) {
    return lanes[worker].tryStart(operator, epoch);
  }

  /** Count a turn as ended that no frame starts. */
  public void cancelStart(int worker, int epoch) {
    lanes[worker].ended(operator, epoch);
  }

  /** Request the worker alone, see {@link WorkerLane#requestExclusive}. */
  public void requestExclusive(int worker, int epoch) {
    lanes[worker].requestExclusive(operator, epoch);
  }

  /** Use the worker alone, see {@link WorkerLane#startExclusive}. */
  public void startExclusive(int worker, int epoch, int turns) {
    lanes[worker].startExclusive(operator, epoch, turns);
  }

  /** Send a frame. The frame is dropped if the worker's process of that epoch has exited. */
  public void send(int worker, int epoch, byte[] frame) {
    workers[worker].send(epoch, frame);
  }
}
