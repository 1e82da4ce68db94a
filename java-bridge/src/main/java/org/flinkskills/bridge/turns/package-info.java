/**
 * Turns of an operator: their keyed state, the selection of the next turn, and its run in a worker.
 *
 * <p>Only the task's thread uses these classes. The formats are in savepoints.
 *
 * <p>Used by: {@code operator}, {@code streams}.
 */
package org.flinkskills.bridge.turns;
