/**
 * Worker processes on the host: their start in the job's Python environment, their log, memory and
 * files, and the processes that they leave running.
 *
 * <p>Used by: {@code pool}, {@code operator}.
 */
package org.flinkskills.bridge.processes;
