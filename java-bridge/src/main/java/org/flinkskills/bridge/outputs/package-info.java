/**
 * Records that an operator emits: those of workers, and error records that the TaskManager creates.
 *
 * <p>Used by: {@code waits}, {@code turns}, {@code operator}.
 */
package org.flinkskills.bridge.outputs;
