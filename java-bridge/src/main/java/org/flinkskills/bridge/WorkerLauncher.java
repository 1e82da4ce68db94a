package org.flinkskills.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;

/** Starts worker processes. It is prepared once per pool and closed with it. */
interface WorkerLauncher extends AutoCloseable {

  /**
   * Starts a worker. The calling thread lives as long as the worker does, which the worker's
   * parent-death signal needs: to Linux the parent is a thread.
   *
   * @throws IOException when the process cannot be started at all; trying again would not help
   */
  Worker launch(int index) throws IOException;

  /** Returns the stream that shows the prints of user code. Null: prints are only in the log. */
  default PrintStream prints() {
    return null;
  }

  @Override
  void close() throws IOException;

  /** A running worker. */
  interface Worker {

    /** Takes frames to the worker. */
    OutputStream input();

    /** Brings frames from the worker; its end means that the worker is gone. */
    InputStream output();

    /**
     * Brings the worker's log lines. It may outlast the worker: a process that the worker started
     * may have the other end.
     */
    InputStream log();

    /** Waits for the end of the process; false when it still runs after that time. */
    boolean awaitExit(long millis) throws InterruptedException;

    /** Kills the process and all its descendants. */
    void kill();

    /**
     * Ends the processes that the worker started and that still run, see {@link LeftProcesses}.
     * Does nothing while the worker runs, and when it was done before.
     */
    void endLeft() throws InterruptedException;

    /** How the process ended, such as "exit code 1", for error messages. */
    String exitDescription();
  }
}
