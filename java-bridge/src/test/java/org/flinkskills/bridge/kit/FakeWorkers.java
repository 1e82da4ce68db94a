package org.flinkskills.bridge.kit;

import java.io.FilterInputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PipedInputStream;
import java.io.PipedOutputStream;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.channels.Pipe;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiConsumer;
import java.util.stream.Stream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.streaming.api.operators.StreamingRuntimeContext;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.frames.FrameParser;
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.operator.AgentOperatorFactory;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.processes.WorkerLauncher;
import org.flinkskills.bridge.waits.WaitState;

/** Workers inside the test's JVM that exchange frames over pipes, and that the test controls. */
public final class FakeWorkers implements WorkerLauncher {
  private static final Map<Integer, FakeWorkers> BY_ID = new ConcurrentHashMap<>();
  private static final AtomicInteger IDS = new AtomicInteger();

  public final List<FakeWorker> launched = new CopyOnWriteArrayList<>();
  public final AtomicInteger opened = new AtomicInteger();
  public final AtomicInteger closed = new AtomicInteger();
  public volatile Path scratch;
  public volatile IOException launchFailure;

  /** Handler of OPEN. The default responds with OPENED. */
  public volatile BiConsumer<FakeWorker, Open> onOpen = FakeWorker::opened;

  /** Handler of a turn. By default the test handles it, see {@link #takeTurn}. */
  public volatile BiConsumer<FakeWorker, Turn> onTurn = (worker, turn) -> worker.turns.add(turn);

  /** Errors that the streams "input", "output" and "log" of a worker throw once. */
  public final Map<String, Error> failing = new ConcurrentHashMap<>();

  private final int id = IDS.incrementAndGet();

  public FakeWorkers() {
    BY_ID.put(id, this);
  }

  public record Open(int plan, String config) {}

  public record Turn(
      int operator,
      int plan,
      long id,
      int flags,
      int crashes,
      long timestamp,
      long number,
      long sessionVersion,
      String key,
      String event,
      List<String> session,
      List<String> journal,
      List<String> answers,
      List<String> base,
      String refusal) {
    public boolean hasSession() {
      return (flags & Frames.TURN_HAS_SESSION) != 0;
    }
  }

  /** An answer that a running turn received. */
  public record ReceivedAnswer(long turn, String answer) {}

  public record Session(int operator, long turn, long version, List<String> chunks) {}

  private record Provider(int id) implements AgentOperatorFactory.LauncherProvider {
    private static final long serialVersionUID = 1L;

    @Override
    public WorkerLauncher open(
        Path scratch,
        Configuration pythonConfig,
        AgentSettings settings,
        StreamingRuntimeContext context,
        Environment environment) {
      FakeWorkers workers = BY_ID.get(id);
      workers.opened.incrementAndGet();
      workers.scratch = scratch;
      return workers;
    }
  }

  /** Return the id of a wait that tests call w1, w2, …; any other text is a name. */
  public static String id(String label) {
    return label.matches("w\\d+")
        ? String.format("%032d", Long.parseLong(label.substring(1)))
        : label;
  }

  public AgentOperatorFactory.LauncherProvider provider() {
    return new Provider(id);
  }

  @Override
  public Worker launch(int index) throws IOException {
    if (launchFailure != null) {
      throw launchFailure;
    }
    FakeWorker worker = new FakeWorker(index);
    launched.add(worker);
    return worker;
  }

  @Override
  public void close() {
    closed.incrementAndGet();
  }

  /** The n-th start of a worker, from 0; waits for it. */
  public FakeWorker started(int n) throws Exception {
    Waiting.until("start " + n + " of a worker", () -> launched.size() > n);
    return launched.get(n);
  }

  /** The first start of the worker with that index; all workers have started. */
  public FakeWorker of(int index) {
    return launched.stream().filter(each -> each.index == index).findFirst().orElseThrow();
  }

  /** The only worker that is running. */
  public FakeWorker only() throws Exception {
    return started(0);
  }

  public final class FakeWorker implements Worker {
    public final int index;
    public final BlockingQueue<Turn> turns = new LinkedBlockingQueue<>();
    public final BlockingQueue<ReceivedAnswer> receivedAnswers = new LinkedBlockingQueue<>();
    public final BlockingQueue<Session> sessions = new LinkedBlockingQueue<>();
    public final List<Integer> cancelled = new CopyOnWriteArrayList<>();
    public final BlockingQueue<String> controls = new LinkedBlockingQueue<>();

    /** Answers no PING, like a stopped process. */
    public volatile boolean silent;

    public final AtomicInteger pings = new AtomicInteger();
    public final List<Open> opens = new CopyOnWriteArrayList<>();

    private final Pipe toWorker = Pipe.open();
    private final Pipe fromWorker = Pipe.open();
    // The reader of the log needs the number of available bytes, which channels do not return.
    private final PipedInputStream log = new PipedInputStream(1 << 16);
    private final PipedOutputStream lines = new PipedOutputStream(log);
    private final OutputStream answers = Channels.newOutputStream(fromWorker.sink());
    private final CountDownLatch exited = new CountDownLatch(1);
    private final Thread thread;
    private volatile int exitCode;

    FakeWorker(int index) throws IOException {
      this.index = index;
      this.thread = new Thread(this::serve, "fake-worker-" + index);
      thread.setDaemon(true);
      thread.start();
    }

    public Turn takeTurn() throws InterruptedException {
      Turn turn = turns.poll(Waiting.LIMIT.toSeconds(), TimeUnit.SECONDS);
      if (turn == null) {
        throw new AssertionError("No turn arrived at the worker.");
      }
      return turn;
    }

    public Turn takeTurn(String event) throws InterruptedException {
      Turn turn = takeTurn();
      if (!turn.event.equals(event)) {
        throw new AssertionError("Expected the turn of " + event + ", got " + turn);
      }
      return turn;
    }

    public void opened(Open open) {
      answer(
          new FrameWriter(Frames.OPENED)
              .u32(open.plan)
              .bytes("{}".getBytes(StandardCharsets.UTF_8)));
    }

    public void openFailed(Open open, String message) {
      openFailed(open, message, false);
    }

    public void openFailed(Open open, String message, boolean retryable) {
      int flags = retryable ? Frames.OPEN_FAILED_RETRYABLE : 0;
      answer(new FrameWriter(Frames.OPEN_FAILED).u32(open.plan).u8(flags).str(message));
    }

    /** Outputs as in {@link #end}. */
    public void step(Turn turn, boolean clear, String entry, String... outputs) {
      FrameWriter frame =
          new FrameWriter(Frames.STEP)
              .u32(turn.operator)
              .u64(turn.id)
              .u8(clear ? Frames.STEP_CLEARS_JOURNAL : 0)
              .bytes(entry.getBytes(StandardCharsets.UTF_8));
      answer(outputs(frame, outputs));
    }

    /** Open a wait without a deadline. */
    public void open(Turn turn, String id, String name, String... outputs) {
      open(turn, id, name, WaitState.NO_DEADLINE, 0, outputs);
    }

    public void open(
        Turn turn, String id, String name, long deadline, int flags, String... outputs) {
      change(turn, Frames.WAIT_OPEN, id, name, deadline, flags, "open " + id, outputs);
    }

    public void close(Turn turn, String id, String... outputs) {
      change(turn, Frames.WAIT_CLOSE, id, "", WaitState.NO_DEADLINE, 0, "close " + id, outputs);
    }

    public void change(
        Turn turn,
        int operation,
        String id,
        String name,
        long deadline,
        int flags,
        String entry,
        String... outputs) {
      FrameWriter frame =
          new FrameWriter(Frames.WAIT)
              .u32(turn.operator)
              .u64(turn.id)
              .u8(operation)
              .str(id(id))
              .str(name)
              .u64(deadline)
              .u8(flags)
              .str(entry);
      answer(outputs(frame, outputs));
    }

    /** Stop until a wait has an answer. */
    public void park(Turn turn) {
      answer(new FrameWriter(Frames.PARK).u32(turn.operator).u64(turn.id));
    }

    public void end(Turn turn, String... outputs) {
      end(turn, Frames.END_OK, Frames.SESSION_KEEP, List.of(), "", outputs);
    }

    public void endWithSession(Turn turn, int op, String... chunks) {
      end(turn, Frames.END_OK, op, List.of(chunks), "", "out:" + turn.event);
    }

    /** An output "tag>text" goes to a side output. */
    public void end(
        Turn turn, int status, int op, List<String> chunks, String message, String... outputs) {
      FrameWriter frame =
          new FrameWriter(Frames.END)
              .u32(turn.operator)
              .u64(turn.id)
              .u8(status)
              .u8(op)
              .list(chunks.stream().map(c -> c.getBytes(StandardCharsets.UTF_8)).toList());
      answer(outputs(frame, outputs).str(message));
    }

    private static FrameWriter outputs(FrameWriter frame, String... outputs) {
      frame.u32(outputs.length);
      for (String output : outputs) {
        int split = output.indexOf('>');
        frame
            .str(split < 0 ? "" : output.substring(0, split))
            .bytes(output.substring(split + 1).getBytes(StandardCharsets.UTF_8));
      }
      return frame;
    }

    public void output(Turn turn, String... outputs) {
      FrameWriter frame = new FrameWriter(Frames.OUTPUTS).u32(turn.operator).u64(turn.id);
      answer(outputs(frame, outputs));
    }

    public void events(int plan, String... events) {
      List<byte[]> values =
          Stream.of(events).map(event -> event.getBytes(StandardCharsets.UTF_8)).toList();
      answer(new FrameWriter(Frames.EVENTS).u32(plan).list(values));
    }

    public void needSession(Turn turn) {
      answer(new FrameWriter(Frames.NEED_SESSION).u32(turn.operator).u64(turn.id));
    }

    public void metrics(int plan, String json) {
      byte[] figures = json.getBytes(StandardCharsets.UTF_8);
      answer(new FrameWriter(Frames.METRICS).u32(plan).bytes(figures));
    }

    public void answer(FrameWriter frame) {
      raw(frame.frame());
    }

    public synchronized void raw(byte[] bytes) {
      try {
        answers.write(bytes);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    public void log(String line) throws IOException {
      lines.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    }

    public void die(int code) {
      exitCode = code;
      try {
        fromWorker.sink().close();
        lines.close();
        toWorker.source().close();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
      exited.countDown();
    }

    @Override
    public OutputStream input() {
      return new FilterOutputStream(Channels.newOutputStream(toWorker.sink())) {
        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
          fail("input");
          out.write(bytes, offset, length);
        }
      };
    }

    @Override
    public InputStream output() {
      return failing("output", Channels.newInputStream(fromWorker.source()));
    }

    private InputStream failing(String name, InputStream stream) {
      return new FilterInputStream(stream) {
        @Override
        public int read(byte[] bytes, int offset, int length) throws IOException {
          int count = in.read(bytes, offset, length);
          fail(name);
          return count;
        }
      };
    }

    private void fail(String name) {
      Error error = failing.remove(name);
      if (error != null) {
        throw error;
      }
    }

    @Override
    public InputStream log() {
      return failing("log", log);
    }

    @Override
    public boolean awaitExit(long millis) throws InterruptedException {
      return exited.await(millis, TimeUnit.MILLISECONDS);
    }

    @Override
    public void kill() {
      die(137);
    }

    @Override
    public void endRemaining() {}

    @Override
    public String exitDescription() {
      return "exit code " + exitCode;
    }

    private void serve() {
      try {
        InputStream input = Channels.newInputStream(toWorker.source());
        FrameParser parser = new FrameParser();
        List<Frame> frames = new ArrayList<>();
        while (parser.read(input, frames)) {
          for (Frame frame : frames) {
            if (frame.type() == Frames.CLOSE) {
              die(0);
              return;
            }
            take(frame);
          }
          frames.clear();
        }
        die(0);
      } catch (IOException | UncheckedIOException e) {
        exited.countDown();
      }
    }

    private void take(Frame frame) throws IOException {
      switch (frame.type()) {
        case Frames.OPEN -> {
          Open open = new Open(frame.u32(), frame.str());
          opens.add(open);
          onOpen.accept(this, open);
        }
        case Frames.TURN -> onTurn.accept(this, turn(frame));
        case Frames.ANSWER -> {
          frame.u32();
          receivedAnswers.add(new ReceivedAnswer(frame.u64(), answerOf(frame)));
        }
        case Frames.SESSION ->
            sessions.add(new Session(frame.u32(), frame.u64(), frame.u64(), texts(frame.list())));
        case Frames.PING -> {
          pings.incrementAndGet();
          if (!silent) {
            answer(new FrameWriter(Frames.PONG));
          }
        }
        case Frames.CANCEL -> cancelled.add(frame.u32());
        case Frames.CONTROL -> {
          frame.u64();
          controls.add(frame.str());
          controls.addAll(texts(frame.list()));
        }
        default -> throw new IOException("unexpected frame " + frame.type());
      }
    }
  }

  private static Turn turn(Frame frame) throws IOException {
    int operator = frame.u32();
    int plan = frame.u32();
    long id = frame.u64();
    int flags = frame.u8();
    return new Turn(
        operator,
        plan,
        id,
        flags,
        frame.u32(),
        frame.u64(),
        frame.u64(),
        frame.u64(),
        frame.str(),
        frame.str(),
        texts(frame.list()),
        texts(frame.list()),
        (flags & Frames.TURN_HAS_ANSWERS) == 0 ? List.of() : answers(frame),
        (flags & Frames.TURN_HAS_BASE) == 0 ? null : texts(frame.list()),
        (flags & Frames.TURN_IS_REFUSED) == 0 ? null : frame.str());
  }

  private static List<String> answers(Frame frame) throws IOException {
    int count = frame.u32();
    List<String> found = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      found.add(answerOf(frame));
    }
    return found;
  }

  /** The id of the wait, and the answer or the number of its kind. */
  private static String answerOf(Frame frame) throws IOException {
    String id = frame.str();
    int kind = frame.u8();
    frame.u64();
    String value = frame.str();
    return "w" + Long.parseLong(id) + "=" + (kind == Frames.ANSWERED ? value : "#" + kind);
  }

  private static List<String> texts(List<byte[]> values) {
    return values.stream().map(v -> new String(v, StandardCharsets.UTF_8)).toList();
  }
}
