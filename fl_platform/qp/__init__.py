"""Projection of a vector onto the cone where it agrees with every anchor: linear algebra, nothing federated.

    project(p, [a_1..a_C]) = argmin_v 1/2 |v - p|^2   subject to   <v, a_i> >= margin |p| |a_i|

It is found through the dual, whose size is the number of anchors: min_{z >= 0} 1/2 z'Qz + b'z with Q the Gram matrix
of the anchors and b_i = <p, a_i>; then v = p + sum_i z_i a_i. v is unique, z is not when anchors are dependent.
A Gram matrix knows angles to half of float64's digits: between anchors that are opposite to within eps, v carries an
error of about 1e-15 / eps^2, and below eps = 1e-5 it merely meets the constraints to the reported residual.
"""

from fl_platform.qp.dual import QPError, Solution
from fl_platform.qp.projection import Projection, project, project_stack
from fl_platform.qp.solve import SOLVERS, TOLERANCE, solve

__all__ = ["SOLVERS", "TOLERANCE", "Projection", "QPError", "Solution", "project", "project_stack", "solve"]
