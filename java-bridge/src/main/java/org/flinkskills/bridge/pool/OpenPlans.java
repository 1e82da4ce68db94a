package org.flinkskills.bridge.pool;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.AgentRejectedException;
import org.flinkskills.bridge.AgentWorkerException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.metrics.WorkerReport;
import org.flinkskills.bridge.plan.AgentPlan;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Registry of the plans that the workers of a pool open, and of the state of these workers.
 *
 * <p>Every worker opens every plan. An operator attaches to a plan that all workers have opened.
 */
final class OpenPlans {
  private static final Logger LOG = LoggerFactory.getLogger(OpenPlans.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  /** The number of an attached operator, and the epochs of workers that accept its turns, or 0. */
  record Attachment(int operator, int[] readyEpochs) {}

  private final JobID jobId;

  /** The part of OPEN that is the same for all plans and workers. */
  private final ObjectNode config;

  private final WorkerProcess[] workers;
  private final WorkerLane[] lanes;
  private final PoolOperators operators;

  /** Guards the fields below. Order of locks: this one, then the lock of a worker or a lane. */
  private final Object lock = new Object();

  private final Map<AgentPlan, PooledPlan> plansBySource = new HashMap<>();
  private final Map<Integer, PooledPlan> plans = new LinkedHashMap<>();
  private final int[] epochs;

  /** Workers that get no turns yet, see {@link WorkerRestarts}. */
  private final boolean[] onProbation;

  private int nextPlan = 1;
  private Exception failure;
  private boolean closed;

  /**
   * @param workers the workers of the pool; may be filled later
   * @param lanes the lane of each worker; may be filled later
   */
  OpenPlans(
      JobID jobId,
      ObjectNode config,
      WorkerProcess[] workers,
      WorkerLane[] lanes,
      PoolOperators operators) {
    this.jobId = jobId;
    this.config = config;
    this.workers = workers;
    this.lanes = lanes;
    this.operators = operators;
    this.epochs = new int[workers.length];
    this.onProbation = new boolean[workers.length];
  }

  /**
   * Open a plan in every worker, and wait until all workers have opened it. The workers open a plan
   * one time for all of its operators.
   *
   * @return the plan's number in the frames
   * @throws AgentOpenException with the message of the worker that could not open it, or after the
   *     timeout
   */
  int open(AgentPlan source, Map<String, List<String>> resources, long timeoutMs) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
    synchronized (lock) {
      checkUsable();
      PooledPlan plan = plansBySource.get(source);
      if (plan == null) {
        plan = add(source, resources);
      }
      while (plan.openedBy.size() < workers.length) {
        checkUsable();
        if (plan.failure != null) {
          throw copyOf(plan.failure);
        }
        long remaining = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
        if (remaining <= 0) {
          throw new AgentOpenException(
              String.format(
                  "%d of %d agent workers have not opened the agent within %d ms; its skills may be"
                      + " slow to fetch. See the TaskManager's log, or set"
                      + " skills.worker.open-timeout.",
                  workers.length - plan.openedBy.size(), workers.length, timeoutMs));
        }
        lock.wait(remaining);
      }
      return plan.id;
    }
  }

  /** Add a plan, and send it to the running workers. The caller holds the lock. */
  private PooledPlan add(AgentPlan source, Map<String, List<String>> resources)
      throws JsonProcessingException {
    PooledPlan plan = new PooledPlan(nextPlan++, source, JSON.readTree(source.json()), resources);
    plansBySource.put(source, plan);
    plans.put(plan.id, plan);
    for (int i = 0; i < workers.length; i++) {
      if (epochs[i] > 0) {
        sendOpen(plan, i);
      }
    }
    return plan;
  }

  Attachment attach(int planId, WorkerListener listener) throws Exception {
    synchronized (lock) {
      checkUsable();
      PooledPlan plan = plans.get(planId);
      if (plan == null) {
        throw new AgentOpenException("A restarted agent worker could not open the agent again.");
      }
      boolean first = operators.firstOf(planId) == null;
      int operator = operators.add(planId, listener);
      if (first) {
        plan.reportMetrics(listener);
        plan.reportEvents(listener);
      }
      int[] ready = epochs.clone();
      for (int i = 0; i < ready.length; i++) {
        if (onProbation[i] || !plan.openedBy.contains(i)) {
          ready[i] = 0;
        }
      }
      return new Attachment(operator, ready);
    }
  }

  void detach(int operator) {
    synchronized (lock) {
      PoolOperators.Attached detached = operators.remove(operator);
      if (detached == null) {
        return;
      }
      // One operator of a plan has the plan's metrics, so that a sum counts them one time.
      WorkerListener next = operators.firstOf(detached.plan());
      PooledPlan plan = plans.get(detached.plan());
      if (next != null && plan != null) {
        plan.reportMetrics(next);
      }
      for (int i = 0; i < workers.length; i++) {
        workers[i].send(epochs[i], Frames.cancel(operator));
        lanes[i].detach(operator);
      }
    }
  }

  /** Fail if the pool has failed or is closed. The caller holds the lock. */
  private void checkUsable() throws Exception {
    if (failure instanceof AgentOpenException openFailure) {
      throw copyOf(openFailure);
    }
    if (failure != null) {
      throw new AgentWorkerException(failure.getMessage());
    }
    if (closed) {
      throw new AgentWorkerException("The pool of agent workers of job " + jobId + " is closed.");
    }
  }

  /** Return the same failure for another thread, with the stack of that thread. */
  private static AgentOpenException copyOf(AgentOpenException failure) {
    return failure instanceof AgentRejectedException
        ? new AgentRejectedException(failure.getMessage())
        : new AgentOpenException(failure.getMessage());
  }

  /** Send OPEN to one worker. The caller holds the lock. */
  private void sendOpen(PooledPlan plan, int worker) {
    workers[worker].send(epochs[worker], Frames.open(plan.id, plan.config(config, worker)));
    workers[worker].opening(epochs[worker]);
  }

  /** Fail all operators, the waiting ones included. */
  void fail(Exception reason) {
    List<WorkerListener> listeners;
    synchronized (lock) {
      if (failure != null || closed) {
        return;
      }
      failure = reason;
      lock.notifyAll();
      listeners = operators.all();
    }
    LOG.error("The agent workers of job {} failed.", jobId, reason);
    listeners.forEach(listener -> listener.onFailure(reason));
  }

  /** Reject further operators. Return false if the registry is already closed. */
  boolean close() {
    synchronized (lock) {
      boolean open = !closed;
      closed = true;
      lock.notifyAll();
      return open;
    }
  }

  /**
   * Add a new process of a worker.
   *
   * @param probation whether the process gets no turns before {@link #steady}
   */
  void started(WorkerProcess worker, int epoch, boolean probation) {
    synchronized (lock) {
      epochs[worker.index()] = epoch;
      onProbation[worker.index()] = probation;
      lanes[worker.index()].up(epoch);
      for (PooledPlan plan : plans.values()) {
        sendOpen(plan, worker.index());
      }
    }
  }

  /** End the probation of a process. */
  void steady(WorkerProcess worker, int epoch) {
    synchronized (lock) {
      if (epochs[worker.index()] != epoch) {
        return;
      }
      onProbation[worker.index()] = false;
      for (PooledPlan plan : plans.values()) {
        if (plan.openedBy.contains(worker.index())) {
          reportReady(worker, epoch, plan.id);
        }
      }
    }
  }

  /** Remove a process that has exited. */
  void lost(WorkerProcess worker, int epoch, String reason) {
    synchronized (lock) {
      LOG.warn("Agent worker {} of job {} is gone: {}", worker.index(), jobId, reason);
      epochs[worker.index()] = 0;
      plans.values().forEach(plan -> plan.openedBy.remove(worker.index()));
      lanes[worker.index()].down();
      operators.all().forEach(listener -> listener.onLost(worker.index(), epoch));
    }
  }

  void opened(WorkerProcess worker, int epoch, int planId, String report) {
    LOG.debug(
        "Agent worker {} of job {} opened plan {}: {}", worker.index(), jobId, planId, report);
    synchronized (lock) {
      PooledPlan plan = plans.get(planId);
      if (plan != null) {
        plan.openedBy.add(worker.index());
      }
      checkAllOpened(worker, epoch);
      lock.notifyAll();
      if (!onProbation[worker.index()]) {
        reportReady(worker, epoch, planId);
      }
    }
  }

  /**
   * Remove a plan that a worker could not open. A plan without operators fails only the operators
   * that wait for it. Without a plan that has operators, the pool cannot continue.
   */
  void openFailed(WorkerProcess worker, int epoch, int planId, AgentOpenException reason) {
    boolean inUse;
    synchronized (lock) {
      PooledPlan plan = plans.remove(planId);
      checkAllOpened(worker, epoch);
      if (plan == null) {
        return;
      }
      plansBySource.values().remove(plan);
      plan.failure = reason;
      lock.notifyAll();
      inUse = operators.firstOf(planId) != null;
    }
    if (inUse) {
      fail(reason);
    }
  }

  /** The caller holds the lock. */
  private void reportReady(WorkerProcess worker, int epoch, int planId) {
    operators.of(planId).forEach(listener -> listener.onReady(worker.index(), epoch));
  }

  /** Stop the open timeout of a worker that has opened every plan. The caller holds the lock. */
  private void checkAllOpened(WorkerProcess worker, int epoch) {
    if (plans.values().stream().allMatch(plan -> plan.openedBy.contains(worker.index()))) {
      worker.opened(epoch);
    }
  }

  /** Pass events to one operator of the plan, which emits each of them one time. */
  void events(int planId, List<byte[]> events) {
    synchronized (lock) {
      PooledPlan plan = plans.get(planId);
      if (plan == null) {
        return;
      }
      WorkerListener first = operators.firstOf(planId);
      if (first != null) {
        first.onEvents(events);
      } else {
        plan.events.addAll(events);
      }
    }
  }

  /** Pass a report to one operator of the plan. */
  void metrics(WorkerProcess worker, int planId, WorkerReport report) {
    synchronized (lock) {
      PooledPlan plan = plans.get(planId);
      if (plan == null) {
        return;
      }
      // A worker reports before the operators that wait for it are attached.
      plan.gauges
          .computeIfAbsent(worker.index(), index -> new HashMap<>())
          .putAll(report.workerGauges());
      WorkerListener first = operators.firstOf(planId);
      if (first != null) {
        first.onMetrics(worker.index(), report);
      } else if (!report.counters().isEmpty()) {
        plan.reports.add(Map.entry(worker.index(), report));
      }
    }
  }
}
