package org.flinkskills.bridge;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.util.ShutdownHookUtil;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The worker processes of one job on one TaskManager, shared by all its slots and all its agents.
 * How long it lives is the matter of {@link WorkerPools}.
 */
final class WorkerPool {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerPool.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long CLOSE_GRACE_MS = 5000;

  /** What a pool is made from; the first operator that acquires it provides this. */
  record Blueprint(
      int workers,
      long workerMemory,
      long openTimeoutMs,
      String[] tmpDirectories,
      String taskManager,
      LauncherFactory launchers) {}

  /** Prepares the environment of the workers, given the pool's scratch folder. */
  interface LauncherFactory {
    WorkerLauncher open(Path scratch) throws Exception;
  }

  /** An operator's place in the pool. */
  record Attachment(int operator, int[] readyEpochs) {}

  private record Attached(int plan, WorkerListener listener) {}

  private final JobID jobId;
  private final ScratchDirectory scratch;
  private final WorkerLauncher launcher;

  /** The part of OPEN that is the same for all plans and workers. */
  private final ObjectNode config;

  private final WorkerProcess[] workers;
  private final WorkerMonitor monitor;
  private final WorkerLane[] lanes;
  private final MemoryBudget answers = MemoryBudget.ofHeap();
  private final PoolResources resources;
  private final ConcurrentSkipListMap<Integer, Attached> operators = new ConcurrentSkipListMap<>();

  /** Guards everything below. Order of locks: this one, then a worker's or a lane's. */
  private final Object lock = new Object();

  private final Map<AgentPlan, PooledPlan> plansBySource = new HashMap<>();
  private final Map<Integer, PooledPlan> plans = new LinkedHashMap<>();
  private final int[] epochs;

  /** Workers that get no turns yet, see {@link WorkerRestarts}. */
  private final boolean[] onProbation;

  private int nextPlan = 1;
  private int nextOperator = 1;
  private Exception failure;
  private boolean closed;
  private Thread shutdownHook;

  /** Prepares the launcher and starts the workers. */
  static WorkerPool create(JobID jobId, Blueprint blueprint) throws Exception {
    ScratchDirectory scratch = ScratchDirectory.create(blueprint.tmpDirectories(), jobId);
    WorkerLauncher launcher;
    try {
      launcher = blueprint.launchers().open(scratch.path());
    } catch (Throwable t) {
      scratch.delete();
      throw t;
    }
    WorkerPool pool = new WorkerPool(jobId, blueprint, scratch, launcher);
    pool.start();
    return pool;
  }

  private WorkerPool(
      JobID jobId, Blueprint blueprint, ScratchDirectory scratch, WorkerLauncher launcher) {
    this.jobId = jobId;
    this.scratch = scratch;
    this.launcher = launcher;
    this.resources = new PoolResources(scratch.path().resolve("resources"));
    this.config =
        JSON.createObjectNode()
            .put("scratch_dir", scratch.path().toString())
            .put("job_id", jobId.toString())
            .put("workers", blueprint.workers())
            .put("memory", blueprint.workerMemory())
            .put("task_manager", blueprint.taskManager())
            // Workers share what one of them has fetched since the job opened here.
            .put("opened", System.currentTimeMillis() / 1000.0);
    this.workers = new WorkerProcess[blueprint.workers()];
    this.lanes = new WorkerLane[blueprint.workers()];
    this.epochs = new int[blueprint.workers()];
    this.onProbation = new boolean[blueprint.workers()];
    String shortId = jobId.toString().substring(0, 8);
    this.monitor =
        new WorkerMonitor(workers, "agent-worker-" + shortId + "-monitor", this::fail);
    for (int i = 0; i < workers.length; i++) {
      lanes[i] = new WorkerLane(i, new LaneNotifier());
      workers[i] =
          new WorkerProcess(
              "agent-worker-" + shortId + "-" + i,
              jobId,
              i,
              launcher,
              blueprint.openTimeoutMs(),
              new ProcessEvents());
    }
  }

  private void start() {
    // A TaskManager that is told to stop does not close its tasks' operators.
    shutdownHook = ShutdownHookUtil.addShutdownHook(this::closeNow, "agent worker pool", LOG);
    for (WorkerProcess worker : workers) {
      worker.start();
    }
    monitor.start();
  }

  int workers() {
    return workers.length;
  }

  WorkerLane lane(int worker) {
    return lanes[worker];
  }

  /** Returns a queue for the reports to one operator. The queues of a pool share their memory. */
  ReportQueue reports() {
    return new ReportQueue(answers, scratch.path());
  }

  void send(int worker, int epoch, byte[] frame) {
    workers[worker].send(epoch, frame);
  }

  /**
   * Has every worker open the plan and waits until all have. The same plan is opened once, whatever
   * the number of operators.
   *
   * @return the plan's number in the frames
   * @throws AgentOpenException with the message of the worker that could not open it, or when not
   *     all have answered in time
   */
  int registerPlan(AgentPlan source, AgentSettings settings, ClassLoader classLoader)
      throws Exception {
    long timeoutMs = settings.openTimeoutMs();
    Map<String, List<String>> found =
        resources.paths(settings.resources(), settings.resourceLimits(), classLoader);
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
    List.of(workers).forEach(worker -> worker.allowSilence(settings.maxSilenceMs()));
    synchronized (lock) {
      checkUsable();
      PooledPlan plan = plansBySource.get(source);
      if (plan == null) {
        plan = new PooledPlan(nextPlan++, source, JSON.readTree(source.json()), found);
        plansBySource.put(source, plan);
        plans.put(plan.id, plan);
        for (int i = 0; i < workers.length; i++) {
          if (epochs[i] > 0) {
            sendOpen(plan, i);
          }
        }
      }
      while (plan.openedBy.size() < workers.length) {
        checkUsable();
        if (plan.failure != null) {
          throw again(plan.failure);
        }
        long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
        if (left <= 0) {
          throw new AgentOpenException(
              String.format(
                  "%d of %d agent workers have not opened the agent within %d ms; its skills may be"
                      + " slow to fetch. See the TaskManager's log, or set skills.worker.open-timeout.",
                  workers.length - plan.openedBy.size(), workers.length, timeoutMs));
        }
        lock.wait(left);
      }
      return plan.id;
    }
  }

  Attachment attach(int plan, WorkerListener listener) throws Exception {
    synchronized (lock) {
      checkUsable();
      if (!plans.containsKey(plan)) {
        throw new AgentOpenException("A restarted agent worker could not open the agent again.");
      }
      int operator = nextOperator++;
      boolean first = firstOf(plan) == null;
      operators.put(operator, new Attached(plan, listener));
      if (first) {
        plans.get(plan).tellMetrics(listener);
        List<byte[]> events = plans.get(plan).events;
        if (!events.isEmpty()) {
          listener.onEvents(List.copyOf(events));
          events.clear();
        }
      }
      int[] ready = epochs.clone();
      for (int i = 0; i < ready.length; i++) {
        if (onProbation[i] || !plans.get(plan).openedBy.contains(i)) {
          ready[i] = 0;
        }
      }
      return new Attachment(operator, ready);
    }
  }

  void detach(int operator) {
    synchronized (lock) {
      Attached gone = operators.remove(operator);
      if (gone == null) {
        return;
      }
      // The figures of a plan are with one of its operators, so that a sum does not count them
      // twice.
      Attached next = firstOf(gone.plan);
      if (next != null && plans.containsKey(gone.plan)) {
        plans.get(gone.plan).tellMetrics(next.listener);
      }
      for (int i = 0; i < workers.length; i++) {
        workers[i].send(epochs[i], Frames.cancel(operator));
        lanes[i].detach(operator);
      }
    }
  }

  /** The operator of a plan that was attached first, or null. */
  private Attached firstOf(int plan) {
    for (Attached attached : operators.values()) {
      if (attached.plan == plan) {
        return attached;
      }
    }
    return null;
  }

  /** Throws when the pool has failed or is closed; the caller holds the lock. */
  private void checkUsable() throws Exception {
    if (failure instanceof AgentOpenException) {
      throw again((AgentOpenException) failure);
    }
    if (failure != null) {
      throw new AgentWorkerException(failure.getMessage());
    }
    if (closed) {
      throw new AgentWorkerException("The pool of agent workers of job " + jobId + " is closed.");
    }
  }

  /** The same failure for another thread, with that thread's own stack. */
  private static AgentOpenException again(AgentOpenException failure) {
    return failure instanceof AgentRejectedException
        ? new AgentRejectedException(failure.getMessage())
        : new AgentOpenException(failure.getMessage());
  }

  /** Sends OPEN to one worker; the caller holds the lock. */
  private void sendOpen(PooledPlan plan, int worker) {
    byte[] json = plan.config(config, worker);
    workers[worker].send(epochs[worker], Frames.open(plan.id, json));
    workers[worker].opening(epochs[worker]);
  }

  private void fail(Exception reason) {
    List<Attached> all;
    synchronized (lock) {
      if (failure != null || closed) {
        return;
      }
      failure = reason;
      lock.notifyAll();
      all = new ArrayList<>(operators.values());
    }
    LOG.error("The agent workers of job {} failed.", jobId, reason);
    all.forEach(attached -> attached.listener.onFailure(reason));
  }

  /** Ends the workers and removes what they wrote; takes up to nine seconds. */
  void close() {
    ShutdownHookUtil.removeShutdownHook(shutdownHook, "agent worker pool", LOG);
    closeNow();
  }

  private void closeNow() {
    synchronized (lock) {
      if (closed) {
        return;
      }
      closed = true;
      lock.notifyAll();
    }
    monitor.close();
    for (WorkerProcess worker : workers) {
      worker.beginClose(CLOSE_GRACE_MS);
    }
    for (WorkerProcess worker : workers) {
      worker.awaitClosed();
    }
    WorkerProcess.join(monitor.thread(), CLOSE_GRACE_MS);
    try {
      launcher.close();
    } catch (IOException e) {
      LOG.warn("The Python environment of job {} could not be removed completely.", jobId, e);
    }
    scratch.delete();
  }

  private final class LaneNotifier implements WorkerLane.Notifier {
    @Override
    public void laneFree(int operator, int worker) {
      Attached attached = operators.get(operator);
      if (attached != null) {
        attached.listener.onLaneFree(worker);
      }
    }

    @Override
    public void exclusive(int operator, int worker, int epoch) {
      Attached attached = operators.get(operator);
      if (attached != null) {
        attached.listener.onExclusive(worker, epoch);
      }
    }
  }

  private final class ProcessEvents implements WorkerProcess.Events {
    @Override
    public void started(WorkerProcess worker, int epoch, boolean probation) {
      synchronized (lock) {
        epochs[worker.index()] = epoch;
        onProbation[worker.index()] = probation;
        lanes[worker.index()].up(epoch);
        for (PooledPlan plan : plans.values()) {
          sendOpen(plan, worker.index());
        }
      }
    }

    @Override
    public void frames(WorkerProcess worker, int epoch, List<Frames.Frame> frames)
        throws IOException {
      TurnAnswers answers = new TurnAnswers();
      try {
        for (Frames.Frame frame : frames) {
          frame(worker, epoch, frame, answers);
        }
      } finally {
        // The frames before a broken one are handled.
        answers.forEach((operator, found) -> answered(worker, epoch, operator, found));
      }
    }

    private void frame(WorkerProcess worker, int epoch, Frames.Frame frame, TurnAnswers answers)
        throws IOException {
      switch (frame.type()) {
        case Frames.STEP, Frames.END, Frames.NEED_SESSION, Frames.OUTPUTS -> answers.add(frame);
        case Frames.OPENED -> opened(worker, epoch, frame.u32(), frame.str());
        case Frames.OPEN_FAILED -> openFailed(worker, epoch, frame);
        case Frames.EVENTS -> events(frame.u32(), frame.list());
        case Frames.METRICS -> metrics(worker, frame.u32(), frame.bytes());
        case Frames.PONG -> LOG.trace("Agent worker {} answered.", worker.index());
        default ->
            throw new Frames.FrameException(
                String.format(
                    "The agent worker sent a frame of the unknown type 0x%02x. Worker and bridge"
                        + " jar must be of the same release.",
                    frame.type()));
      }
    }

    private void answered(
        WorkerProcess worker, int epoch, int operator, List<Frames.Frame> answers) {
      Attached attached = operators.get(operator);
      if (attached == null) {
        return;
      }
      attached.listener.onFrames(worker.index(), epoch, answers);
      for (Frames.Frame answer : answers) {
        if (answer.type() == Frames.END) {
          lanes[worker.index()].ended(operator, epoch);
        }
      }
    }

    private void opened(WorkerProcess worker, int epoch, int planId, String report) {
      LOG.debug(
          "Agent worker {} of job {} opened plan {}: {}", worker.index(), jobId, planId, report);
      synchronized (lock) {
        PooledPlan plan = plans.get(planId);
        if (plan != null) {
          plan.openedBy.add(worker.index());
        }
        noteOpened(worker, epoch);
        lock.notifyAll();
        if (!onProbation[worker.index()]) {
          tellReady(worker, epoch, planId);
        }
      }
    }

    /** The caller holds the lock. */
    private void tellReady(WorkerProcess worker, int epoch, int planId) {
      for (Attached attached : operators.values()) {
        if (attached.plan == planId) {
          attached.listener.onReady(worker.index(), epoch);
        }
      }
    }

    @Override
    public void steady(WorkerProcess worker, int epoch) {
      synchronized (lock) {
        if (epochs[worker.index()] != epoch) {
          return;
        }
        onProbation[worker.index()] = false;
        for (PooledPlan plan : plans.values()) {
          if (plan.openedBy.contains(worker.index())) {
            tellReady(worker, epoch, plan.id);
          }
        }
      }
    }

    /** Fails who waits for the plan; a plan that turns run on already cannot go on without it. */
    private void openFailed(WorkerProcess worker, int epoch, Frames.Frame frame)
        throws Frames.FrameException {
      int planId = frame.u32();
      boolean mayHelpAgain = (frame.u8() & Frames.OPEN_FAILED_RETRYABLE) != 0;
      String message = frame.str();
      AgentOpenException reason =
          mayHelpAgain ? new AgentOpenException(message) : new AgentRejectedException(message);
      boolean inUse;
      synchronized (lock) {
        PooledPlan plan = plans.remove(planId);
        noteOpened(worker, epoch);
        if (plan == null) {
          return;
        }
        plansBySource.values().remove(plan);
        plan.failure = reason;
        lock.notifyAll();
        inUse = operators.values().stream().anyMatch(attached -> attached.plan == planId);
      }
      if (inUse) {
        fail(reason);
      }
    }

    /** Stops the clock of a worker that has answered to every plan; the caller holds the lock. */
    private void noteOpened(WorkerProcess worker, int epoch) {
      if (plans.values().stream().allMatch(plan -> plan.openedBy.contains(worker.index()))) {
        worker.opened(epoch);
      }
    }

    /** Hands events to one operator of their plan: each of them is emitted once. */
    private void events(int planId, List<byte[]> events) {
      synchronized (lock) {
        PooledPlan plan = plans.get(planId);
        if (plan == null) {
          return;
        }
        Attached first = firstOf(planId);
        if (first != null) {
          first.listener.onEvents(events);
        } else {
          plan.events.addAll(events);
        }
      }
    }

    private void metrics(WorkerProcess worker, int planId, byte[] json) throws IOException {
      WorkerReport report = WorkerReport.of(JSON.readTree(json));
      synchronized (lock) {
        PooledPlan plan = plans.get(planId);
        if (plan == null) {
          return;
        }
        // Kept: a worker reports before the operators that wait for it are attached.
        plan.gauges
            .computeIfAbsent(worker.index(), index -> new HashMap<>())
            .putAll(report.gauges());
        Attached first = firstOf(planId);
        if (first != null) {
          first.listener.onMetrics(worker.index(), report);
        } else if (!report.increases().isEmpty()) {
          plan.untold.add(Map.entry(worker.index(), report));
        }
      }
    }

    @Override
    public void lost(WorkerProcess worker, int epoch, String reason) {
      synchronized (lock) {
        LOG.warn("Agent worker {} of job {} is gone: {}", worker.index(), jobId, reason);
        epochs[worker.index()] = 0;
        plans.values().forEach(plan -> plan.openedBy.remove(worker.index()));
        lanes[worker.index()].down();
        operators.values().forEach(attached -> attached.listener.onLost(worker.index(), epoch));
      }
    }

    @Override
    public void gaveUp(WorkerProcess worker, Exception reason) {
      fail(reason);
    }
  }
}
