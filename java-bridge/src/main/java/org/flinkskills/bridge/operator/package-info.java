/**
 * Flink operator of an agent: the contract with Flink's runtime, and the mails from the threads of
 * the pool to the task's thread.
 *
 * <p>Used by: {@code streams}.
 */
package org.flinkskills.bridge.operator;
