/**
 * Metrics of an operator: its own, and those that workers report.
 *
 * <p>Used by: {@code pool}, {@code waits}, {@code turns}, {@code operator}.
 */
package org.flinkskills.bridge.metrics;
