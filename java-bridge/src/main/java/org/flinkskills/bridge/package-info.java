/**
 * Exceptions with which jobs with agents fail.
 *
 * <p>Their names are in logs and in Flink's web UI, so these classes stay in this package. All
 * other classes are in packages of their subjects.
 *
 * <p>Used by: {@code plan}, {@code pool}, {@code waits}, {@code turns}, {@code operator}.
 */
package org.flinkskills.bridge;
