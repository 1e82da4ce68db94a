/**
 * Values that a job passes to its TaskManagers: the plan of an agent, the settings of its operator,
 * and resources in jars.
 *
 * <p>Used by: {@code processes}, {@code pool}, {@code waits}, {@code turns}, {@code operator},
 * {@code streams}.
 */
package org.flinkskills.bridge.plan;
