/**
 * Pool of the worker processes of a job on a TaskManager: it supervises the processes, opens plans
 * in them, and passes frames between them and the operators.
 *
 * <p>Threads of the pool call {@link org.flinkskills.bridge.pool.WorkerListener}. The task's thread
 * of an operator uses {@link org.flinkskills.bridge.pool.PoolConnection}.
 *
 * <p>Used by: {@code turns}, {@code operator}.
 */
package org.flinkskills.bridge.pool;
