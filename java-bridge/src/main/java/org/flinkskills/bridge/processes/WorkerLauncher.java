package org.flinkskills.bridge.processes;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;

/** Launcher of the worker processes of one pool. */
public interface WorkerLauncher extends AutoCloseable {

  /**
   * Start a worker. The calling thread must live as long as the worker: the worker's parent-death
   * signal requires this, because the parent is a thread in Linux.
   *
   * @throws IOException if the process cannot be started, and a retry would not help
   */
  Worker launch(int index) throws IOException;

  /** Return the stream for the prints of user code, or null if they are only logged. */
  default PrintStream prints() {
    return null;
  }

  @Override
  void close() throws IOException;

  /** A running worker. */
  interface Worker {

    /** Return the stream of frames to the worker. */
    OutputStream input();

    /** Return the stream of frames from the worker, which ends when the worker exits. */
    InputStream output();

    /**
     * Return the stream of the worker's log lines. It may stay open after the worker exits, if a
     * process that the worker started has the other end.
     */
    InputStream log();

    /** Wait for the exit of the process. Return false if it still runs after that time. */
    boolean awaitExit(long millis) throws InterruptedException;

    /** Kill the process and all its descendants. */
    void kill();

    /**
     * Terminate the remaining processes that the worker started, see {@link LeftProcesses}. Has no
     * effect while the worker runs, and when it is called again.
     */
    void endRemaining() throws InterruptedException;

    /** Return the cause of the exit for error messages, such as "exit code 1". */
    String exitDescription();
  }
}
