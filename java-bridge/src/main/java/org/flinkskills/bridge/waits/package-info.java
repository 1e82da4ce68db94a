/**
 * Waits of turns: their keyed state, answers, deadlines and timers.
 *
 * <p>Only the task's thread uses these classes. The formats are in savepoints.
 *
 * <p>Used by: {@code turns}, {@code operator}, {@code streams}.
 */
package org.flinkskills.bridge.waits;
