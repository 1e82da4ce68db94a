package org.flinkskills.bridge.pool;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.util.function.ThrowingRunnable;
import org.flinkskills.bridge.frames.Frame;

/**
 * Queue of the reports of workers to one operator.
 *
 * <p>An operator handles no reports while its outputs accept no records, but its turns continue. So
 * the queue writes frames that exceed their share of the memory to a file, and reads them in order.
 */
public final class ReportQueue implements AutoCloseable {
  /** The size of a frame's objects in bytes, without its content. */
  private static final int OBJECT_BYTES = 64;

  private final Memory memory;
  private final Path directory;
  private final Deque<Report> reports = new ArrayDeque<>();
  private FileChannel file;
  private int inFile;
  private boolean closed;

  /** Bytes of the heap that the queues of a pool share. */
  static final class Memory {
    /** Flink derives the heap of a TaskManager from its memory settings. */
    private static final int SHARE_OF_HEAP = 16;

    private final long limit = Runtime.getRuntime().maxMemory() / SHARE_OF_HEAP;
    private final AtomicLong used = new AtomicLong();

    /** Reserve bytes. Return false if the remaining memory does not suffice. */
    private boolean reserve(long bytes) {
      if (used.addAndGet(bytes) <= limit) {
        return true;
      }
      used.addAndGet(-bytes);
      return false;
    }

    private void release(long bytes) {
      used.addAndGet(-bytes);
    }
  }

  /** Frames of one worker, or another report as a {@code change}. */
  public static final class Report {
    public final int worker;
    public final int epoch;
    public final ThrowingRunnable<Exception> change;
    private List<Frame> frames;
    private int next;
    private long bytes;

    /** The lengths of frames that are in the file; null if they are in memory. */
    private int[] lengths;

    private long position;

    private Report(int worker, int epoch, List<Frame> frames, ThrowingRunnable<Exception> change) {
      this.worker = worker;
      this.epoch = epoch;
      this.frames = frames;
      this.change = change;
      for (Frame frame : frames) {
        bytes += frame.content().length + OBJECT_BYTES;
      }
    }

    public boolean hasNext() {
      return next < frames.size();
    }

    /** Return the next frame, or null after the last one. */
    public Frame nextFrame() {
      return next < frames.size() ? frames.get(next++) : null;
    }
  }

  /**
   * @param directory the directory in which the queue creates its file when it requires one
   */
  ReportQueue(Memory memory, Path directory) {
    this.memory = memory;
    this.directory = directory;
  }

  public void add(ThrowingRunnable<Exception> change) {
    synchronized (reports) {
      reports.addLast(new Report(0, 0, List.of(), change));
    }
  }

  /** Add frames whose operator has been read. */
  public void add(int worker, int epoch, List<Frame> frames) throws IOException {
    Report report = new Report(worker, epoch, frames, null);
    synchronized (reports) {
      if (closed) {
        return;
      }
      boolean fits = memory.reserve(report.bytes);
      if (!fits && reports.isEmpty()) {
        // The operator handles this report next, and has its frames in memory in any case.
        report.bytes = 0;
      } else if (!fits) {
        write(report);
      }
      reports.addLast(report);
    }
  }

  /** Return the first report with its frames in memory, or null. The report stays in the queue. */
  public Report peek() throws IOException {
    synchronized (reports) {
      Report first = reports.peekFirst();
      if (first != null && first.lengths != null) {
        read(first);
      }
      return first;
    }
  }

  /** Remove the first report. */
  public void remove() {
    synchronized (reports) {
      Report first = reports.pollFirst();
      if (first != null) {
        memory.release(first.bytes);
      }
    }
  }

  public boolean isEmpty() {
    synchronized (reports) {
      return reports.isEmpty();
    }
  }

  private void write(Report report) throws IOException {
    if (file == null) {
      Path path = Files.createTempFile(directory, "answers-", ".bin");
      file =
          FileChannel.open(
              path,
              StandardOpenOption.READ,
              StandardOpenOption.WRITE,
              StandardOpenOption.DELETE_ON_CLOSE);
    }
    report.position = file.size();
    report.lengths = new int[report.frames.size()];
    long at = report.position;
    for (int i = 0; i < report.lengths.length; i++) {
      ByteBuffer content = ByteBuffer.wrap(report.frames.get(i).content());
      report.lengths[i] = content.remaining();
      while (content.hasRemaining()) {
        at += file.write(content, at);
      }
    }
    report.frames = null;
    report.bytes = 0;
    inFile++;
  }

  private void read(Report report) throws IOException {
    List<Frame> frames = new ArrayList<>(report.lengths.length);
    long at = report.position;
    for (int length : report.lengths) {
      ByteBuffer content = ByteBuffer.allocate(length);
      while (content.hasRemaining()) {
        int count = file.read(content, at);
        if (count < 0) {
          throw new EOFException("The file with answers of agent workers is shorter than written.");
        }
        at += count;
      }
      Frame frame = new Frame(content.array());
      frame.u32();
      frames.add(frame);
    }
    report.frames = frames;
    report.lengths = null;
    inFile--;
    if (inFile == 0) {
      file.truncate(0);
    }
  }

  @Override
  public void close() throws IOException {
    synchronized (reports) {
      closed = true;
      reports.forEach(report -> memory.release(report.bytes));
      reports.clear();
      if (file != null) {
        file.close();
      }
    }
  }
}
