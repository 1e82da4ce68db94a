/**
 * Frames between the JVM and a worker process: their format, and readers and writers of it.
 *
 * <p>The Python side is {@code flink_skills.worker.frames}; both must change together.
 *
 * <p>Used by: {@code outputs}, {@code pool}, {@code waits}, {@code turns}, {@code operator}.
 */
package org.flinkskills.bridge.frames;
